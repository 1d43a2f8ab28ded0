//go:build unix

package postgres

import (
	"fmt"
	"os"
	"os/user"
	"runtime"
	"strconv"
	"syscall"
)

// ownedBy gives dir to the user that the server runs as, and returns the attributes of processes of that user.
func ownedBy(dir string) (*syscall.SysProcAttr, error) {
	attributes := dying()
	if os.Getuid() != 0 {
		return attributes, nil
	}
	who, err := user.Lookup("postgres")
	if err != nil {
		if who, err = user.Lookup("nobody"); err != nil {
			return nil, fmt.Errorf("PostgreSQL does not run as root, and there is neither a user postgres nor nobody: %w", err)
		}
	}
	uid, err := strconv.ParseUint(who.Uid, 10, 32)
	if err != nil {
		return nil, err
	}
	gid, err := strconv.ParseUint(who.Gid, 10, 32)
	if err != nil {
		return nil, err
	}
	attributes.Credential = &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}
	return attributes, os.Chown(dir, int(uid), int(gid))
}

func lockThread() { runtime.LockOSThread() }

// quit ends a server at once: SIGQUIT is what PostgreSQL calls an immediate shutdown.
func quit(p *os.Process) error { return p.Signal(syscall.SIGQUIT) }
