// Package childproc starts programs as child processes that do not outlive their parent, and does to them what happens to
// processes: SIGKILL, SIGSTOP and SIGCONT, SIGTERM.
//
// On Linux the kernel kills a child when its parent dies, however that happens. Elsewhere a child whose parent was killed
// finds its standard input at its end, and is expected to leave by itself.
package childproc
