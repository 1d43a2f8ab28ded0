package main

import (
	"errors"
	"fmt"
	"net"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/redis/go-redis/v9"
)

var errNotURL = errors.New("not a URL: want it like redis://user:password@127.0.0.1:6379/0, with special characters " +
	"in a password percent-encoded (/ is %2F, @ is %40, : is %3A)")

// Whoever answers an unverified connection is given the password, and takes the jobs.
var errUnverified = errors.New("skip_verify is not supported, since anybody could then answer for the server and be given the password: " +
	"name the authority that signed its certificate with --tls-ca (for a self-signed one that certificate itself), and the name in it with --tls-server-name")

// parseURL reads a server's URL. Its errors never show what may be a password, so never the URL: a password that is not
// percent-encoded ends up in any part of it.
func parseURL(text string) (*endpoint, error) {
	u, err := url.Parse(text)
	if err != nil || u.Opaque != "" {
		return nil, errNotURL // the error would show the URL
	}
	query := u.Query()
	switch {
	case u.Scheme == "unix" && (query.Has("master_name") || query.Has("cluster") || query.Has("addr")):
		return nil, errors.New("master_name, cluster and addr are for redis:// and rediss://, not for a unix socket")
	case u.Scheme == "unix" && strings.Contains(u.Path, ":") && strings.Contains(u.Path, "@"):
		return nil, errNotURL
	case u.Scheme == "unix":
		return singleURL(u)
	case u.Scheme != "redis" && u.Scheme != "rediss":
		return nil, errors.New("the URL begins with none of redis://, rediss:// (TLS) and unix://")
	case !slices.Contains([]string{"", "0", "false"}, query.Get("skip_verify")):
		return nil, errUnverified
	}
	if err := checkParts(u, query); err != nil {
		return nil, err
	}
	cluster, err := isCluster(query)
	switch {
	case err != nil:
		return nil, err
	case query.Has("master_name") && cluster:
		return nil, errors.New("master_name is for Sentinel, cluster for Redis Cluster: want one of them")
	case query.Has("master_name"):
		return failoverURL(u)
	case cluster:
		query.Del("cluster") // ours: the client library does not know it
		u.RawQuery = query.Encode()
		return clusterURL(u)
	case query.Has("addr"):
		return nil, errors.New("addr names further servers of a Sentinel or a Cluster: add master_name=… or cluster=true")
	}
	return singleURL(u)
}

// checkParts finds the mistakes that the client library would tell with a part of the URL.
func checkParts(u *url.URL, query url.Values) error {
	if u.Hostname() == "" || strings.Contains(u.Path, "@") {
		return errNotURL
	}
	if db := strings.Trim(u.Path, "/"); db != "" {
		if n, err := strconv.Atoi(db); err != nil || n < 0 {
			return errors.New("after the host the URL has something else than a database number, as the 0 in redis://127.0.0.1:6379/0")
		}
	}
	for _, addr := range query["addr"] {
		if host, port, err := net.SplitHostPort(addr); err != nil || host == "" || port == "" || strings.Contains(addr, "@") {
			return errors.New("a parameter addr is not host:port; user and password stand once, before the first host")
		}
	}
	return nil
}

func isCluster(query url.Values) (bool, error) {
	if !query.Has("cluster") {
		return false, nil
	}
	yes, err := strconv.ParseBool(query.Get("cluster"))
	if err != nil {
		return false, errors.New("the parameter cluster is neither true nor false")
	}
	return yes, nil
}

func singleURL(u *url.URL) (*endpoint, error) {
	query := u.Query()
	query.Del("cluster") // false
	u.RawQuery = query.Encode()
	o, err := redis.ParseURL(u.String())
	if err != nil {
		return nil, clientError(err)
	}
	told := fmt.Sprintf("%s/%d", o.Addr, o.DB)
	if u.Scheme == "unix" {
		told = "unix:" + told
	}
	return &endpoint{told: told, scheme: u.Scheme, database: o.DB, single: o}, nil
}

func failoverURL(u *url.URL) (*endpoint, error) {
	o, err := redis.ParseFailoverURL(u.String())
	switch {
	case err != nil:
		return nil, clientError(err)
	case o.MasterName == "":
		return nil, errors.New("the parameter master_name is empty: want the name that the Sentinels know the primary by")
	case strings.Contains(o.MasterName, "@"): // Sentinel has no such names
		return nil, errNotURL
	case o.RouteByLatency || o.RouteRandomly || o.ReplicaOnly:
		return nil, errors.New("route_by_latency, route_randomly and replica_only read from replicas: leases are on the primary only")
	}
	told := fmt.Sprintf("%s of the Sentinels %s", o.MasterName, strings.Join(o.SentinelAddrs, ", "))
	return &endpoint{told: told, scheme: u.Scheme, database: o.DB, failover: o}, nil
}

func clusterURL(u *url.URL) (*endpoint, error) {
	if db := strings.Trim(u.Path, "/"); db != "" && db != "0" {
		return nil, errors.New("a Redis Cluster has database 0 only")
	}
	o, err := redis.ParseClusterURL(u.String())
	switch {
	case err != nil:
		return nil, clientError(err)
	case o.RouteByLatency || o.RouteRandomly || o.ReadOnly:
		return nil, errors.New("route_by_latency, route_randomly and read_only read from replicas: leases are on the primary only")
	}
	return &endpoint{told: "the Cluster at " + strings.Join(o.Addrs, ", "), scheme: u.Scheme, cluster: o}, nil
}

// clientError is for mistakes in parameters. What the client library says of a value is left out: a password that is not
// percent-encoded can be part of it.
func clientError(err error) error {
	text := strings.TrimPrefix(err.Error(), "redis: ")
	if name, ok := strings.CutPrefix(text, "unexpected option: "); ok {
		if strings.Contains(name, "@") {
			return errNotURL
		}
		return fmt.Errorf("the URL has parameters that are not known here: %s (files for TLS are given by --tls-ca, --tls-cert and --tls-key; "+
			"user and password by --user and --password-file, or before the host, and for Sentinel those of the primary as username=, password=)", name)
	}
	text, _, _ = strings.Cut(text, ": ")
	return errors.New(text)
}

// userinfo and secrets are where a URL inside of a text can hold a password.
var (
	userinfo = regexp.MustCompile(`://[^\s"']*@`)
	secrets  = regexp.MustCompile(`(?i)([?&][a-z_]*password=)[^&\s"']*`)
)

// redact hides passwords in URLs that found their way into a text, as one given where a name was expected. The example
// in our own texts stays.
func redact(text string) string {
	text = userinfo.ReplaceAllStringFunc(text, func(found string) string {
		if found == "://user:password@" {
			return found
		}
		return "://***@"
	})
	return secrets.ReplaceAllString(text, "${1}***")
}
