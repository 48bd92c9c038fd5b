# Jobs of Sidekiq, for `sidekiq -r sidekiq_jobs.rb` and for sidekiq_checks.rb.

require "sidekiq"

SENTINELS = ENV.fetch("SENTINELS", "").split.map { |at| at.split(":") }
REDIS =
  if SENTINELS.empty?
    { url: ENV.fetch("SERVER_URL") }
  else
    { url: "redis://delaylog", role: :master,
      sentinels: SENTINELS.map { |host, port| { host: host, port: Integer(port) } } }
  end

Sidekiq.configure_server do |config|
  config.redis = REDIS
  # It looks for jobs that are due each five seconds by default.
  config.average_scheduled_poll_interval = 1
end
Sidekiq.configure_client { |config| config.redis = REDIS }

def note(word)
  File.open(ENV.fetch("RAN_FILE"), "a") { |file| file.syswrite("#{word} #{(Time.now.to_f * 1000).to_i}\n") }
end

class Add
  include Sidekiq::Job

  def perform(a, b)
    note("add:#{a}+#{b}")
  end
end

class FailOnce
  include Sidekiq::Job
  sidekiq_options retry: 2
  sidekiq_retry_in { 1 }

  def perform(path)
    note("fail_once")
    return if File.exist?(path)

    File.write(path, "")
    raise "first try"
  end
end

class Slow
  include Sidekiq::Job

  def perform
    note("slow")
    sleep 600
  end
end

class Fail
  include Sidekiq::Job
  sidekiq_options retry: 0

  def perform
    note("fail")
    raise "this job fails"
  end
end
