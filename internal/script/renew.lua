-- Renew the leases of many locks of one cluster slot, or of one server.
--
-- KEYS     the locks
-- ARGV     for the i-th lock, ARGV[2i-1] its owner id and ARGV[2i] the lease in ms
--
-- Reply    {now, outcome of each lock in order}: now is this server's clock in ms
--          1 renewed  the owner has its field and the key lives at least the lease
--          0 gone     the owner has no field, or the key holds another type: nothing was changed
--          2 failed   the server refused to look or to set the TTL: nothing is known
--
-- Never creates a key and never shortens a TTL. Idempotent. One lock's error does not touch the others.
local time = redis.call('TIME')
local reply = {time[1] * 1000 + math.floor(time[2] / 1000)}

local function failure(answer)
  return type(answer) == 'table' and answer.err
end

local function renew(key, owner, lease)
  local held = redis.pcall('HEXISTS', key, owner)
  if failure(held) then
    return string.find(held.err, 'WRONGTYPE', 1, true) and 0 or 2
  end
  if held == 0 then
    return 0
  end
  local ttl = redis.pcall('PTTL', key)
  if failure(ttl) then
    return 2
  end
  if ttl < lease and failure(redis.pcall('PEXPIRE', key, lease)) then
    return 2
  end
  return 1
end

for i = 1, #KEYS do
  reply[i + 1] = renew(KEYS[i], ARGV[2 * i - 1], tonumber(ARGV[2 * i]))
end
return reply
