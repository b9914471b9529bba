# A module: it reads requests from stdin, line by line, and answers each with a line on stdout.
# What is for people goes to stderr (warn): stdiod keeps it in the module's log.
require "json"

$stdin.set_encoding("UTF-8")
$stdout.sync = true # flush each line

OPS = {
  "greet" => ->(args) { "hello #{args["name"]}" },
}.freeze

def failure(code, message) = { ok: false, error: { code: code, message: message } }

def answer(request)
  case request["operation"]
  when "health" then return { status: "ok" }
  when "describe" then return {} # all there is to say stands in module.json
  end
  op = OPS[request.dig("input", "op")]
  return failure("unsupported_op", "there is no such op") if request["operation"] != "invoke" || op.nil?

  { ok: true, result: op.call(request["input"]["args"]) }
rescue StandardError => error
  failure("internal", error.message)
end

$stdin.each_line do |line|
  request = JSON.parse(line)
  puts JSON.generate({ requestId: request["requestId"] }.merge(answer(request)))
end
