-- look: reads the result of a done effect; changes nothing
-- KEYS: sessions records…
-- ARGV: effect
-- ANSWER: OK state result
-- state is s, d, or '' where there is no such effect.
local sessions = unpack(KEYS)
local records = {unpack(KEYS, 2)}
local record = records[1]
local text = call('HGET', record, 'e:' .. ARGV[1])
if not text then
  return {'OK', '', ''}
end
local state, _, _, result = parsed(text)
return {'OK', state, result}
