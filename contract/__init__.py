"""What every face of the broker and every client shares; it imports nothing of the rest.

`members` declares values with their types and bounds, and objects of them, `message_fields` the
fields of a message, `calls` the API's calls, `error_codes` the refusals.
"""
