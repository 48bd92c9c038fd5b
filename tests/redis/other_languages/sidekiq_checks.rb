# What a producer of Sidekiq relies on: `ruby sidekiq_checks.rb CHECK` ends with status 0.

require "sidekiq/api"
require_relative "sidekiq_jobs"

LIMIT_S = 60

def await(what)
  ends = Time.now + LIMIT_S
  until yield
    abort "#{what} never came" if Time.now > ends
    sleep 0.05
  end
end

def check(truth, what)
  abort "wrong: #{what}" unless truth
end

case ARGV.fetch(0)
when "one"
  Add.perform_async(Integer(ARGV.fetch(1)), Integer(ARGV.fetch(2)))
when "results"
  Add.perform_async(1, 0)
  Sidekiq::Client.push_bulk("class" => Add, "args" => [[2, 0], [3, 0]])
  check(Sidekiq::Queue.new.size == 3, "three jobs wait")
when "delays"
  far = Add.perform_in(3_600, 9, 9)
  Add.perform_in(2, 2, 0)
  Add.perform_in(1, 1, 0)
  check(Sidekiq::ScheduledSet.new.size == 3, "three jobs are scheduled")
  check(Sidekiq::ScheduledSet.new.find_job(far).delete, "the far job is deleted")
  await("the time of the last one") { Sidekiq::ScheduledSet.new.size.zero? }
when "retries"
  FailOnce.perform_async(ARGV.fetch(1))
  await("a retry") { Sidekiq::RetrySet.new.size == 1 }
  await("its time") { Sidekiq::RetrySet.new.size.zero? }
when "slow"
  Slow.perform_async
when "behind"
  Add.perform_async(1, 0)
when "dead"
  Fail.perform_async
  await("a dead job") { Sidekiq::DeadSet.new.size == 1 }
  check(Sidekiq::DeadSet.new.first.item["error_message"] == "this job fails", "its error")
  await("a process") { Sidekiq::ProcessSet.new.size == 1 }
end
