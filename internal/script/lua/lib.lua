-- lib: put before the body of every script by the loader. Nothing here writes but session_store and wake_up.
local call = redis.call

-- joined says that the body of another script comes in the same call: the loader joins some.
local joined = false

-- int writes a whole number in full. Lua's own conversion keeps 14 digits, and a fence has 16. Written in two parts it
-- takes half as long as with %.0f, and %d takes 32 bits on small machines.
local function int(n)
  if n >= 0 and n < 1e9 then
    return string.format('%d', n)
  elseif n >= 1e9 and n < 1e18 then
    local low = n % 1e9
    return string.format('%d%09d', (n - low) / 1e9, low)
  end
  return string.format('%.0f', n)
end

-- now_us is the server's clock in microseconds, the only clock that counts, and the milliseconds of it as a text. A
-- script reads it once.
local function now_us()
  local t = call('TIME')
  return t[1] * 1000000 + t[2], t[1] .. string.sub('000000' .. t[2], -6, -4)
end

-- session_check stands at the head of every numbered script: the same number again gets the stored answer, a smaller
-- one and an unknown session do nothing. Returns an answer to give at once, or nil and what the last call stored.
local function session_check(sessions, session, number)
  local record = call('HGET', sessions, session)
  local last, rest
  if record then
    last, rest = string.match(record, '^(%d+) %d+ ?(.*)$')
  end
  if not last then
    return {'NOSESSION'}
  end
  if number == last then
    return {'AGAIN', rest}
  end
  if #number < #last or #number == #last and number < last then -- as numbers, without reading them
    return {'STALE'}
  end
  return nil, rest
end

-- session_store is the last write of every numbered script. now is the clock's time, in either form.
local function session_store(sessions, session, number, now, rest)
  if type(now) == 'number' then
    now = int(math.floor(now / 1000))
  end
  call('HSET', sessions, session, number .. ' ' .. now .. ' ' .. rest)
end

-- wake_up tells one waiting process that there may be something to claim.
local function wake_up(wake)
  if call('LLEN', wake) == 0 then
    call('RPUSH', wake, '1')
  end
end
