-- The action lua.weir calls weir to find out whether a request may pass. HAProxy 2.6 has no directive for
-- that. haproxy-open.cfg and haproxy-closed.cfg load this file and act on the answer.
--
--   http-request lua.weir abns@weir-8000 /v1/auth/api?deny=429
--
-- The arguments are the socket on which HAProxy itself listens for the call (the frontend weir
-- in those files), and the path to call. Before, txn.weir_user may be set to the rate-limit key. After,
--
--   txn.weir_answer       pass, deny, down (no decision was made) or wrong (weir does not understand)
--   txn.weir_policy       the fields of weir's answer, unset if it had none
--   txn.weir_ratelimit
--   txn.weir_retry_after
--   txn.weir_body         of a refusal, as application/problem+json

-- The headers of the call for a request. Long paths are cut, so that the call fits into a buffer
-- of HAProxy if the request did.
local function headersFor(txn)
  local headers = {
    ["host"] = { "localhost" }, -- weir answers to localhost and addresses
    ["x-forwarded-for"] = { txn.sf:src() },
    ["x-original-method"] = { txn.sf:method() },
    ["x-original-uri"] = { txn.sf:path():sub(1, 4096) },
    ["x-forwarded-host"] = { txn.sf:req_fhdr("host"):sub(1, 256) },
  }
  local user = txn:get_var("txn.weir_user")
  if user then
    headers["x-user"] = { user }
  end
  return headers
end

-- What an answer with a status means. 5xx are HAProxy's own, too, if it could not reach weir.
local function meaning(status)
  if status >= 200 and status < 300 then
    return "pass"
  elseif status == 429 then
    return "deny"
  elseif status >= 400 and status < 500 then
    return "wrong"
  end
  return "down"
end

local function ask(txn, socket, path)
  local answer = core.httpclient():get{
    url = "http://127.0.0.1" .. path, -- the address is not used: dst is
    dst = socket,
    headers = headersFor(txn),
    timeout = 500, -- ms; the time-outs that count are those of the backend weir
  }
  if not answer or not answer.status then
    return
  end
  txn:set_var("txn.weir_answer", meaning(answer.status))
  for variable, field in pairs({ policy = "ratelimit-policy", ratelimit = "ratelimit", retry_after = "retry-after" }) do
    local values = answer.headers and answer.headers[field]
    if values then
      txn:set_var("txn.weir_" .. variable, values[0])
    end
  end
  if answer.status == 429 then
    txn:set_var("txn.weir_body", (answer.body or ""):match("^(.-)%s*$")) -- a line end would become %0A
  end
end

core.register_action("weir", { "http-req" }, function(txn, socket, path)
  txn:set_var("txn.weir_answer", "down")
  ask(txn, socket, path)
end, 2)
