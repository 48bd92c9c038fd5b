import org.apache.spark.sql.SparkSession;

public class LoadByName {
    public static void main(String[] args) {
        SparkSession spark = SparkSession.builder().getOrCreate();
        spark.range(0, 1000, 1, 4)
            .selectExpr(
                "concat('rent-', id) AS id",
                "'pay rent' AS value",
                "current_timestamp() + interval 1 hour AS deliver_at")
            .write()
            .format("delaylog")
            .option("endpoint", "http://127.0.0.1:8711")
            .option("topic", "from-java")
            .mode("append")
            .save();
    }
}
