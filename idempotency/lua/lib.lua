-- lib of the record scripts: a record is a HASH with owner, until (ms of Redis' clock: when the owner's lease ends),
-- of (a job's incarnation) and a field per effect, `e:` and its name:
--   s <since ms> <print>                              started
--   d <since ms> <print> <done ms>, LF, the result    done
-- print is what the request was, or -.

-- parsed reads an effect's field: its state, since when, its print, and the result of a done one.
local function parsed(text)
  local state, since, print = string.match(text, '^([sd]) (%d+) (%S+)')
  local result = ''
  if state == 'd' then
    result = string.sub(text, (string.find(text, '\n', 1, true) or #text) + 1)
  end
  return state, since, print, result
end

-- keep_for lets a record live for its retention from now on.
local function keep_for(record, retention_ms)
  call('PEXPIRE', record, retention_ms)
end
