"""How programs and Spark of each version enter the connector; read `registering` first.

Below `spark_api` lie PySpark and `errors` alone. The other modules may import all of the connector.
"""
