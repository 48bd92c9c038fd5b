"""Two tasks."""

from django_tasks import TaskContext, task


@task(queue_name="mails")
def remind(user: str) -> None:
    print(f"pay, {user}", flush=True)


@task(takes_context=True)
async def report(context: TaskContext, day: str) -> None:
    if context.attempt == 1:
        raise RuntimeError("the figures are late")
    print(f"report of {day}, attempt {context.attempt} of {context.task_result.id}", flush=True)
