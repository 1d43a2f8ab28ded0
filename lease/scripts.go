package lease

import (
	"embed"

	"github.com/leaseq/leaseq/internal/script"
)

//go:embed lua/*.lua
var luaFiles embed.FS

var luaLib = func() string {
	text, err := luaFiles.ReadFile("lua/lib.lua")
	if err != nil {
		panic("lease: " + err.Error())
	}
	return string(text)
}()

func load(name string) *script.Script {
	return script.MustLoad(luaFiles, "lua/"+name+".lua", luaLib)
}

var (
	enqueueScript = load("enqueue")
	claimScript   = load("claim")
	settleScript  = load("settle")
	extendScript  = load("extend")
	expireScript  = load("expire")
	cancelScript  = load("cancel")
	redriveScript = load("redrive")
	purgeScript   = load("purge")
	policyScript  = load("policy")
	limitsScript  = load("limits")
	wakeScript    = load("wake")
	statsScript   = load("stats")
	pauseScript   = load("pause")
	inspectScript = load("inspect")
	deleteScript  = load("delete")
	eraseScript   = load("erase")

	rescheduleScript = load("reschedule")
	buryScript       = load("bury")
	editScript       = load("edit")
	importScript     = load("import")
	listScript       = load("list")
	retainScript     = load("retain")

	exchangeScript = script.Join(settleScript, claimScript)
)

// Scripts lists the scripts of this package, for tests that check all scripts or tell calls apart by their digests.
func Scripts() []*script.Script {
	return []*script.Script{
		enqueueScript, claimScript, settleScript, extendScript, expireScript, cancelScript,
		redriveScript, purgeScript, policyScript, limitsScript, pauseScript, wakeScript, statsScript, inspectScript, deleteScript, eraseScript,
		rescheduleScript, buryScript, editScript, importScript, listScript, retainScript, exchangeScript,
	}
}
