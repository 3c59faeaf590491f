-- Acquire a lock, or raise an owner's hold count on it.
--
-- KEYS[1]  the lock: a hash with one field, owner id -> hold count
-- ARGV[1]  owner id
-- ARGV[2]  depth: the holds that the owner will have open when this succeeds; 1 is the outermost
-- ARGV[3]  lease in ms
-- ARGV[4]  deadline in ms of this server's clock, 0 for none: a copy of this command that arrives later is refused
-- ARGV[5+] predecessors: owner ids of earlier attempts of the same client that got no answer and that nobody
--          stands behind; a field that one of them left is replaced
--
-- Reply    {code, ttl, now}: now is this server's clock in ms
--          1 granted  ttl is what the key has left, at least the lease
--          0 held     ttl is PTTL of the key: ms, or -1 if it has none
--          2 late     the deadline has passed, nothing was changed
--          3 lost     depth > 1 and the owner has no field any more, nothing was changed
--
-- Idempotent: count and TTL are raised to what is asked for, never added to. A copy that arrives again after the owner
-- has released could take the free lock; the deadline bounds when, and depth > 1 never creates.
local key, owner = KEYS[1], ARGV[1]
local depth, lease, deadline = tonumber(ARGV[2]), tonumber(ARGV[3]), tonumber(ARGV[4])
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)

if deadline > 0 and now > deadline then
  return {2, 0, now}
end

if redis.call('HEXISTS', key, owner) == 1 then
  local ttl = math.max(redis.call('PTTL', key), lease)
  -- The TTL comes first: with a write already done the count passes under maxmemory too.
  redis.call('PEXPIRE', key, ttl)
  local text = redis.call('HGET', key, owner)
  -- PEXPIRE deletes the key if its new end has passed by then: the server was held up for as long as the lease.
  if text then
    local count = tonumber(text)
    if not count or count < depth then
      redis.call('HSET', key, owner, depth)
    end
    return {1, ttl, now}
  end
end
if depth > 1 then
  return {3, 0, now}
end

for i = 5, #ARGV do
  redis.call('HDEL', key, ARGV[i])
end
if redis.call('EXISTS', key) == 1 then
  return {0, redis.call('PTTL', key), now}
end

redis.call('HSET', key, owner, depth)
local expiry = redis.pcall('PEXPIRE', key, lease)
if type(expiry) == 'table' and expiry.err then
  -- A lock without a TTL would block everybody for ever: rather no lock. Whoever lacks the right to one of these
  -- commands may have the other.
  redis.pcall('DEL', key)
  redis.pcall('HDEL', key, owner)
  return expiry
end
return {1, lease, now}
