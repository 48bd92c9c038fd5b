"""What differs between versions of PySpark, and where the package is; read `registering` first.

Below `spark_api` lie PySpark and `errors` alone. The other modules may import all of the connector.
"""
