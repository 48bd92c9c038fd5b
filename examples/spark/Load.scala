import java.io.ByteArrayOutputStream
import java.net.URI
import java.net.http.{HttpClient, HttpRequest, HttpResponse}
import java.util.Arrays
import scala.util.{Success, Try, Using}

import org.apache.arrow.memory.RootAllocator
import org.apache.arrow.vector._
import org.apache.arrow.vector.ipc.ArrowStreamWriter
import org.apache.spark.TaskContext
import org.apache.spark.sql.{Row, SparkSession}

object Load {
  private val broker = "http://127.0.0.1:8711"
  private val json = "application/json"
  private lazy val http = HttpClient.newHttpClient()

  /** Repeats a call without an answer, or one that the broker is too busy for. */
  def call(path: String, kind: String, body: Array[Byte], tries: Int = 8): String = {
    val request = HttpRequest.newBuilder(URI.create(broker + path)).header("Content-Type", kind)
      .POST(HttpRequest.BodyPublishers.ofByteArray(body)).build()
    Try(http.send(request, HttpResponse.BodyHandlers.ofString())) match {
      case Success(answer) if answer.statusCode < 300 => answer.body
      case answer if tries > 1 && answer.toOption.forall(a => Set(429, 503)(a.statusCode)) =>
        Thread.sleep(1000)
        call(path, kind, body, tries - 1)
      case answer => throw new RuntimeException(answer.get.body)
    }
  }

  def arrow(rows: Seq[Row]): Array[Byte] = {
    val out = new ByteArrayOutputStream()
    Using.Manager { use =>
      val memory = use(new RootAllocator())
      val id = new VarCharVector("id", memory)
      val value = new VarBinaryVector("value", memory)
      val due = new TimeStampMicroTZVector("deliver_at", memory, "UTC")
      val root = use(new VectorSchemaRoot(Arrays.asList[FieldVector](id, value, due)))
      for ((row, at) <- rows.zipWithIndex) {
        id.setSafe(at, row.getString(0).getBytes("UTF-8"))
        value.setSafe(at, row.getString(1).getBytes("UTF-8"))
        due.setSafe(at, row.getTimestamp(2).getTime * 1000)
      }
      root.setRowCount(rows.size)
      use(new ArrowStreamWriter(root, null, out)).writeBatch()
    }.get
    out.toByteArray
  }

  def main(args: Array[String]): Unit = {
    val spark = SparkSession.builder().getOrCreate()
    val frame = spark.range(0, 1000, 1, 4).selectExpr(
      "concat('rent-', id) AS id", "'pay rent' AS value",
      "current_timestamp() + interval 1 hour AS deliver_at")

    // The Python source by its name.
    frame.write.format("delaylog").option("endpoint", broker).option("topic", "by-name")
      .mode("append").save()

    // HTTP: each task stages its rows under its attempt, and the driver commits.
    val load = "/v1/transactions/rent-2026-11"
    val run = spark.sparkContext.applicationId
    val begun = call("/v1/transactions", json, """{"transaction": "rent-2026-11"}""".getBytes)
    if (begun.contains("committed")) return // An earlier run has sent everything.
    val winners = frame.rdd.mapPartitionsWithIndex { (part, rows) =>
      val attempt = TaskContext.get().taskAttemptId()
      val counts = for ((some, number) <- rows.grouped(10000).zipWithIndex) yield {
        val name = s"producer=$run&part=$part&attempt=$attempt&number=$number"
        call(s"$load/parts?topic=by-http&$name", "application/vnd.apache.arrow.stream", arrow(some))
        some.size
      }
      Iterator(s"""{"producer": "$run", "part": $part, "attempt": $attempt, "rows": ${counts.sum}}""")
    }.collect()
    call(s"$load/commit", json, s"""{"winners": [${winners.mkString(", ")}]}""".getBytes)
  }
}
