-- Read who holds a lock. One script, because two reads could go to two servers or fall around a change.
--
-- KEYS[1]  the lock
--
-- Reply    {ttl, now, owner, count, ...}: ttl is PTTL (-2 no key, -1 no TTL), now is this server's clock in ms; then
--          field and value of the hash, in no order (one pair for a plain lock)
--
-- Changes nothing.
local key = KEYS[1]
local time = redis.call('TIME')
local reply = {redis.call('PTTL', key), time[1] * 1000 + math.floor(time[2] / 1000)}
for _, text in ipairs(redis.call('HGETALL', key)) do
  reply[#reply + 1] = text
end
return reply
