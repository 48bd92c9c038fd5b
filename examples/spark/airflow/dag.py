"""A daily load; a repeated task adds nothing."""

from datetime import UTC, datetime

from airflow.providers.apache.spark.operators.spark_submit import SparkSubmitOperator
from airflow.sdk import DAG

FIRST_DAY = datetime(2026, 11, 1, tzinfo=UTC)

with DAG("reminders", schedule="@daily", start_date=FIRST_DAY, catchup=False):
    SparkSubmitOperator(
        task_id="load",
        application="/jobs/load_reminders.py",
        application_args=["{{ ds_nodash }}", "/data/reminders"],
        env_vars={
            "DELAYLOG_URL": "http://127.0.0.1:8711",
            "PYSPARK_PYTHON": "/opt/venv/bin/python",
        },
        retries=3,
    )
