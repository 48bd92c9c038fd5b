"""Which addresses webhooks may go to, and how their requests are signed."""
