"""Views that enqueue tasks."""

from datetime import timedelta

from django.http import HttpRequest, JsonResponse
from django.utils import timezone
from shop.tasks import remind, report


def order(request: HttpRequest) -> JsonResponse:
    later = remind.using(run_after=timezone.now() + timedelta(seconds=1))
    return JsonResponse({"task": later.enqueue(request.GET["user"]).id})


def figures(request: HttpRequest) -> JsonResponse:
    return JsonResponse({"task": report.using(priority=-5).enqueue(day="monday").id})
