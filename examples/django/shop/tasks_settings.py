"""What the settings say: the queues are topics."""

TASKS = {"default": {"BACKEND": "shop.backend.DelaylogBackend", "QUEUES": ["default", "mails"]}}
