// Package postgres starts PostgreSQL servers of one's own, in a folder of their own and reachable by a unix socket in it
// only, and ends them: for the examples and their tests. It is for data that may be lost: fsync is off.
package postgres

import (
	"bytes"
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"time"

	_ "github.com/jackc/pgx/v5/stdlib" // the driver called pgx
)

// startBound is how long a server may take to start where the context has no deadline.
const startBound = time.Minute

// A Server is a running PostgreSQL.
type Server struct {
	dir     string
	process *os.Process
	ended   chan struct{}
}

// Find returns the path of a program of PostgreSQL: that on PATH, or the newest where Debian keeps them. The error
// matches [exec.ErrNotFound].
func Find(program string) (string, error) {
	path, err := exec.LookPath(program)
	if err == nil {
		return path, nil
	}
	found, _ := filepath.Glob("/usr/lib/postgresql/*/bin/" + program)
	if len(found) == 0 {
		return "", fmt.Errorf("PostgreSQL is not installed: %w", err)
	}
	return slices.MaxFunc(found, func(a, b string) int { return cmp.Or(cmp.Compare(len(a), len(b)), cmp.Compare(a, b)) }), nil
}

// Start makes a database and a server for it, and returns when it answers. As root it runs under another user, since
// PostgreSQL refuses root: postgres if there is one, else nobody. After an error no process and no folder is left.
func Start(ctx context.Context) (*Server, error) {
	if _, ok := ctx.Deadline(); !ok {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, startBound)
		defer cancel()
	}
	dir, err := os.MkdirTemp("", "leaseq-pg-")
	if err != nil {
		return nil, err
	}
	s := &Server{dir: dir, ended: make(chan struct{})}
	if err := s.start(ctx); err != nil {
		return nil, errors.Join(fmt.Errorf("start PostgreSQL: %w", err), s.Stop())
	}
	return s, nil
}

func (s *Server) start(ctx context.Context) error {
	initdb, err := Find("initdb")
	if err != nil {
		return err
	}
	program, err := Find("postgres")
	if err != nil {
		return err
	}
	attributes, err := ownedBy(s.dir)
	if err != nil {
		return err
	}
	data := filepath.Join(s.dir, "data")
	prepare := exec.CommandContext(ctx, initdb, "-D", data, "-U", "leaseq", "--auth=trust", "-E", "UTF8", "--no-locale", "--no-sync")
	prepare.Dir, prepare.SysProcAttr = s.dir, attributes
	if out, err := prepare.CombinedOutput(); err != nil {
		return fmt.Errorf("initdb: %w: %s", err, bytes.TrimSpace(out))
	}
	server := exec.Command(program, "-D", data, "-k", s.dir, "-c", "listen_addresses=", "-c", "fsync=off", "-c", "max_connections=200")
	server.Dir, server.SysProcAttr = s.dir, attributes
	log := &bytes.Buffer{}
	server.Stdout, server.Stderr = io.Discard, log
	if err := s.run(server); err != nil {
		return err
	}
	db, err := sql.Open("pgx", s.DSN())
	if err != nil {
		return err
	}
	defer func() { _ = db.Close() }()
	for {
		err := db.PingContext(ctx)
		if err == nil {
			return nil
		}
		select {
		case <-s.ended: // nobody writes to the log any more
			return fmt.Errorf("the server ended: %s", bytes.TrimSpace(log.Bytes()))
		case <-ctx.Done():
			return err
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// run starts the server in a thread that lives as long as the server: the kernel takes its end for the parent's.
func (s *Server) run(server *exec.Cmd) error {
	started := make(chan error)
	go func() {
		lockThread()
		err := server.Start()
		if err == nil {
			s.process = server.Process
		}
		started <- err
		if err == nil {
			_ = server.Wait() // how it ended is of no interest
			close(s.ended)
		}
	}()
	return <-started
}

// DSN is the data source name for the driver pgx.
func (s *Server) DSN() string {
	return "host=" + s.dir + " user=leaseq dbname=postgres sslmode=disable"
}

// Stop ends the server at once, without a checkpoint, and removes its folder.
func (s *Server) Stop() error {
	if s.process != nil {
		_ = quit(s.process) // it may have ended
		select {
		case <-s.ended:
		case <-time.After(10 * time.Second):
			_ = s.process.Kill()
			<-s.ended
		}
	}
	return os.RemoveAll(s.dir)
}
