package main

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/leaseq/leaseq/internal/keys"
	"github.com/leaseq/leaseq/lease"
)

const defaultRedis = "redis://127.0.0.1:6379/0"

// connectionFlags are the flags of every command that works on the queues of a server.
type connectionFlags struct {
	redis, prefix string

	user, passwordFile                 string
	sentinelUser, sentinelPasswordFile string
	tls                                tlsFiles
}

func (f *connectionFlags) add(flags *pflag.FlagSet) {
	flags.StringVar(&f.redis, "redis", defaultRedis, "`URL` of the server: redis://, rediss:// (TLS) or unix://; Sentinel with ?master_name=…, Cluster with ?cluster=true")
	flags.StringVar(&f.prefix, "prefix", keys.DefaultPrefix, "`prefix` of all keys, as the queues' programs set it")
	flags.StringVar(&f.user, "user", "", "ACL `user` of the server, instead of one in the URL; default: the server's own default user")
	flags.StringVar(&f.passwordFile, passwordFlag, "", "`file` with the password, instead of one in the URL; read again for each new connection")
	flags.StringVar(&f.sentinelUser, "sentinel-user", "", "ACL `user` of the Sentinels")
	flags.StringVar(&f.sentinelPasswordFile, sentinelPasswordFlag, "", "`file` with the password of the Sentinels; read again for each new connection")
	flags.StringVar(&f.tls.ca, "tls-ca", "", "`file` with the authorities that may have signed the server's certificate, as PEM; default: those that this system trusts")
	flags.StringVar(&f.tls.cert, "tls-cert", "", "`file` with a client certificate, as PEM, for servers that want one")
	flags.StringVar(&f.tls.key, "tls-key", "", "`file` with the client certificate's key, as PEM")
	flags.StringVar(&f.tls.serverName, "tls-server-name", "", "`name` that the server's certificate must be for; default: the host that is connected to")
}

const (
	passwordFlag         = "password-file"
	sentinelPasswordFlag = "sentinel-password-file"
)

// lookFlags are what commands that only look at queues take, and what comes of it.
type lookFlags struct {
	connection connectionFlags
	json       bool
	timeout    time.Duration

	endpoint *endpoint
	rdb      redis.UniversalClient
}

func (f *lookFlags) add(flags *pflag.FlagSet) {
	f.connection.add(flags)
	flags.BoolVar(&f.json, "json", false, "print one JSON object on standard output")
	flags.DurationVar(&f.timeout, "timeout", 5*time.Second, "how long the whole may take")
}

func (f *lookFlags) prepare(a *App) (err error) {
	if f.timeout <= 0 {
		return fmt.Errorf("--timeout %v: want more than 0, as 5s", f.timeout)
	}
	if f.endpoint, err = f.connection.parse(); err != nil {
		return err
	}
	f.rdb = a.open(f.endpoint, true)
	return nil
}

// registered reads the names of all queues, sorted.
func (f *lookFlags) registered(ctx context.Context) ([]string, error) {
	names, err := lease.Queues(ctx, f.rdb, f.connection.prefix)
	if err != nil {
		return nil, f.endpoint.failed(err)
	}
	slices.Sort(names)
	return names, nil
}

// checkURL refuses a --redis that is no URL of a server, for a command without the other flags of a connection, without
// showing it.
func checkURL(flags *pflag.FlagSet) error {
	f := flags.Lookup("redis")
	if f == nil || f.Value.String() == "" || flags.Lookup(passwordFlag) != nil {
		return nil // demo and chaos: no server is given; the others check theirs with all that belongs to it
	}
	if _, err := parseURL(f.Value.String()); err != nil {
		return fmt.Errorf("--redis: %w", err)
	}
	return nil
}

// ownServer is the one flag without a twin: the demonstration, and a storm, are made on a server that was meant for work
// only if that is said on the command line.
func ownServer(cmd *cobra.Command, f *pflag.Flag) bool {
	return (cmd.Name() == "demo" || cmd.Name() == "chaos") && f.Name == "redis"
}

// twin is the environment variable that a flag's value can come from.
func twin(flag string) string {
	return "LEASEQ_" + strings.ToUpper(strings.ReplaceAll(flag, "-", "_"))
}

// addTwins names the twin of each flag in its help.
func addTwins(cmd *cobra.Command) {
	cmd.Flags().VisitAll(func(f *pflag.Flag) {
		if !ownServer(cmd, f) {
			f.Usage += " [" + twin(f.Name) + "]"
		}
	})
	for _, sub := range cmd.Commands() {
		addTwins(sub)
	}
}

// applyTwins sets the flags that are not on the command line from the environment.
func applyTwins(cmd *cobra.Command, lookup func(string) (string, bool)) error {
	var bad error
	cmd.Flags().VisitAll(func(f *pflag.Flag) {
		value, ok := lookup(twin(f.Name))
		if f.Changed || ownServer(cmd, f) || f.Name == "help" || !ok || value == "" || bad != nil {
			return
		}
		if err := f.Value.Set(value); err != nil {
			bad = fmt.Errorf("%s=%q is no value for --%s: %w", twin(f.Name), value, f.Name, err)
		}
	})
	return bad
}
