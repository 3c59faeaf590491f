-- Close one hold of an owner; the last one frees the lock and wakes those who wait for it.
--
-- KEYS[1]  the lock
-- ARGV[1]  owner id
-- ARGV[2]  depth: the holds that the owner has open now, this one included; 1 frees the lock whatever the count says
-- ARGV[3]  unlock channel (an argument, because rights on keys and on channels differ)
-- ARGV[4]  PUBLISH, or SPUBLISH where waiters use sharded channels
-- ARGV[5]  message
--
-- Reply    {code, receivers, now} or {1, -1, now, error}: now is this server's clock in ms
--          1 released  the key is gone; receivers is PUBLISH's answer, -1 if it was refused, with the refusal
--          2 lowered   the count is at most depth - 1, the TTL is as it was
--          0 gone      the owner has no field, nothing was changed and nothing published
--
-- Idempotent: only the owner's field decides. A copy after the first finds the field gone, or the count already low.
local key, owner, depth = KEYS[1], ARGV[1], tonumber(ARGV[2])
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)

if redis.call('HEXISTS', key, owner) == 0 then
  return {0, 0, now}
end

if depth == 1 then
  redis.call('DEL', key)
  -- The release is done: a missing right on the channel must not undo or hide it.
  local receivers = redis.pcall(ARGV[4], ARGV[3], ARGV[5])
  if type(receivers) == 'table' then
    return {1, -1, now, receivers.err}
  end
  return {1, receivers, now}
end

local ttl = redis.call('PTTL', key)
if ttl >= 0 then
  -- Sets what is there; with a write already done the count passes under maxmemory. PEXPIRE 0 would delete.
  redis.call('PEXPIRE', key, math.max(ttl, 1))
end
local text = redis.call('HGET', key, owner)
if not text then
  -- PEXPIRE deletes the key if its new end has passed by then: the server was held up for as long as the rest of it.
  return {0, 0, now}
end
local count = tonumber(text)
if not count or count > depth - 1 then
  redis.call('HSET', key, owner, depth - 1)
end
return {2, 0, now}
