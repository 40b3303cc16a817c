package coxswain

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

const (
	replicaNamespace  = "kube-system"
	replicaSelector   = "coxswain.dev/component=replica"
	addressAnnotation = "coxswain.dev/admin-address"
	caAnnotation      = "coxswain.dev/admin-ca"
	// leaseAnnotation contains the replica's leader-election Lease, as "NAMESPACE/NAME", and the replica's identity.
	leaseAnnotation = "coxswain.dev/lease"

	// DefaultLeaseName is the default name of the leader-election Lease (--leader-elect-resource-name).
	DefaultLeaseName = "kube-controller-manager"
	// DefaultLeaseNamespace is the default namespace of the leader-election Lease (--leader-elect-resource-namespace).
	DefaultLeaseNamespace = "kube-system"
)

// Replica is a running Coxswain that serves the admin API.
type Replica struct {
	// Name is the name of the replica's Lease; empty if the replica was not found by a Lease.
	Name string
	// Identity is the replica's identity in the leader election; empty if the replica was not found by a Lease.
	Identity string
	// Address is "host:port" of the replica's admin API.
	Address string
	// Authority is the CA (PEM) in the replica's Lease; empty if the Lease contains none. Any account that can write
	// Leases can set it.
	Authority string
	// Leads is true if the replica holds the leader-election Lease.
	Leads bool
}

// String returns the identity and the address.
func (r Replica) String() string {
	if r.Identity == "" {
		return r.Address
	}
	return r.Identity + " at " + r.Address
}

// Replicas is the result of reading the Leases.
type Replicas struct {
	// Candidates are the replicas to call: the leader first, then the others by identity. It contains replicas with
	// expired Leases only if all Leases are expired, because this machine's clock may be wrong.
	Candidates []Replica
	// PassedOver describes the other replicas and the reasons why they are not called.
	PassedOver []string
	// Holder is the identity of the Lease's holder, which may be a kube-controller-manager; empty if the Lease has no
	// holder, or the caller cannot read the Lease.
	Holder string
}

// Finder finds the replicas and connects to them, without sending a token to an untrusted server.
type Finder struct {
	// Leases reads the replicas' Leases.
	Leases Leases
	// Addresses are "host:port" of replicas, to set instead of Leases. Each replica returns the leader's address, so one
	// address is enough to find the leader.
	Addresses []string
	// Options contain the caller's credentials, and CAs to trust regardless of Leases.
	Options Options
	// ClusterCAFile is a file with the CAs (PEM) of the cluster's API server. The Finder trusts them if neither
	// Options.CA, Options.CAFile nor the replica's Lease contains a CA. These CAs also sign certificates of nodes, so a
	// token is sent only to a server with a certificate for CertificateName that is not a node's.
	ClusterCAFile string
	// TrustAnnounced allows sending a token to a replica whose CA only its own Lease contains. Any account that can write
	// Leases in kube-system can then steal the token. A client certificate cannot be stolen and does not require this.
	TrustAnnounced bool
	// LeaseName and LeaseNamespace are those of the leader-election Lease; empty for DefaultLeaseName and
	// DefaultLeaseNamespace.
	LeaseName, LeaseNamespace string

	// now returns the time; nil for this machine's clock.
	now func() time.Time
}

// ErrNotVouchedFor is the error for a replica that is not trusted with the caller's token.
var ErrNotVouchedFor = errors.New("coxswain: refusing to send a token: nothing but the replica's own Lease confirms the replica's identity; " +
	"set Options.CAFile, Options.ServerName, a client certificate, ClusterCAFile or TrustAnnounced")

func (f Finder) check() error {
	if (f.Leases == nil) == (len(f.Addresses) == 0) {
		return errors.New("coxswain: set exactly one of Leases and Addresses")
	}
	return nil
}

// Replicas reads the Leases and returns the replicas to call.
func (f Finder) Replicas(ctx context.Context) (Replicas, error) {
	if err := f.check(); err != nil {
		return Replicas{}, err
	}
	if f.Leases == nil {
		var named Replicas
		for _, address := range f.Addresses {
			named.Candidates = append(named.Candidates, Replica{Address: address})
		}
		return named, nil
	}
	leases, err := f.Leases.ListLeases(ctx, replicaNamespace, replicaSelector)
	if err != nil {
		return Replicas{}, err
	}
	// Without this Lease, each replica returns the leader.
	namespace, name := cmp.Or(f.LeaseNamespace, DefaultLeaseNamespace), cmp.Or(f.LeaseName, DefaultLeaseName)
	main, err := f.Leases.GetLease(ctx, namespace, name)
	if err != nil && !errors.Is(err, ErrNoLease) {
		return Replicas{}, err
	}
	now := time.Now
	if f.now != nil {
		now = f.now
	}
	return choose(leases, namespace+"/"+name, main.HolderIdentity, now()), nil
}

// leads returns the leader-election Lease of a replica. Replicas of older versions do not announce it: it is the Lease
// that the replica holds, or else the default one.
func leads(lease Lease, main, holder string) string {
	// An annotation with another identity is left over from a predecessor.
	if name, identity, _ := strings.Cut(lease.Annotations[leaseAnnotation], " "); identity == lease.HolderIdentity {
		return name
	}
	if lease.HolderIdentity == holder {
		return main
	}
	return DefaultLeaseNamespace + "/" + DefaultLeaseName
}

// choose returns the replicas to call, among those with the leader-election Lease main.
func choose(leases []Lease, main, holder string, now time.Time) Replicas {
	type silent struct {
		Replica
		// Time since the last renewal; negative if the Lease was never renewed.
		since time.Duration
	}
	replicas := Replicas{Holder: holder}
	var dead []silent
	for _, lease := range leases {
		// A Lease without a holder was released: its replica has stopped.
		if lease.HolderIdentity == "" {
			continue
		}
		replica := Replica{
			Name:      lease.Name,
			Identity:  lease.HolderIdentity,
			Address:   lease.Annotations[addressAnnotation],
			Authority: lease.Annotations[caAnnotation],
			Leads:     lease.HolderIdentity == holder,
		}
		since := now.Sub(lease.RenewTime)
		other := leads(lease, main, holder)
		switch {
		case other != main:
			replicas.PassedOver = append(replicas.PassedOver, replica.Identity+" uses another leader-election Lease, "+other)
		case replica.Address == "":
			replicas.PassedOver = append(replicas.PassedOver, replica.Identity+" does not serve the admin API")
		case lease.RenewTime.IsZero():
			dead = append(dead, silent{replica, -1})
			replicas.PassedOver = append(replicas.PassedOver, replica.Identity+" has never renewed its Lease")
		case since > lease.LeaseDuration:
			dead = append(dead, silent{replica, since})
			text := fmt.Sprintf("%s has not renewed its Lease for %s", replica.Identity, since.Truncate(time.Second))
			replicas.PassedOver = append(replicas.PassedOver, text)
		default:
			replicas.Candidates = append(replicas.Candidates, replica)
		}
	}
	slices.SortFunc(replicas.Candidates, func(a, b Replica) int {
		if a.Leads != b.Leads {
			if a.Leads {
				return -1
			}
			return 1
		}
		return cmp.Compare(a.Identity, b.Identity)
	})
	slices.Sort(replicas.PassedOver)
	if len(replicas.Candidates) == 0 {
		// Compared as unsigned numbers, so that never-renewed Leases are last.
		slices.SortFunc(dead, func(a, b silent) int {
			return cmp.Or(cmp.Compare(uint64(a.since), uint64(b.since)), cmp.Compare(a.Identity, b.Identity))
		})
		for _, each := range dead {
			replicas.Candidates = append(replicas.Candidates, each.Replica)
		}
	}
	return replicas
}

// Connect creates a client of a replica, with the credentials that the replica is trusted with. It returns
// ErrNotVouchedFor if the replica is not trusted with the caller's only credentials.
func (f Finder) Connect(replica Replica) (*Client, error) {
	if err := checkAddress(replica.Address); err != nil {
		return nil, err
	}
	decided, ok := f.facts(replica).decide()
	if !ok {
		return nil, ErrNotVouchedFor
	}
	options := f.Options
	if decided.name == coxswainName {
		options.ServerName, options.refuseNodes = CertificateName, true
	}
	switch decided.voucher {
	case announcement:
		options.CA = []byte(replica.Authority)
	case cluster:
		options.CAFile = f.ClusterCAFile
	case authority, system:
	}
	if !decided.sendToken {
		options.Token, options.TokenFile = "", ""
	}
	client, err := Connect(replica.Address, options)
	if err != nil && decided.voucher == announcement {
		return nil, fmt.Errorf("load the CA in the Lease of %s: %w", replica, err)
	}
	return client, err
}

func (f Finder) facts(replica Replica) facts {
	return facts{
		authority:      f.Options.CAFile != "" || f.Options.CA != nil,
		trustAnnounced: f.TrustAnnounced,
		// The leader's address from a named replica is not named by the user, because it comes from a Lease.
		named:            slices.Contains(f.Addresses, replica.Address) || f.Options.ServerName != "",
		announced:        replica.Authority != "",
		clusterAuthority: f.ClusterCAFile != "",
		token:            f.Options.hasToken(),
		certificate:      f.Options.CertFile != "",
	}
}

// hint returns a hint for a replica that is unreachable because its CA or the name in its certificate is not trusted.
func (f Finder) hint(replica Replica) string {
	decided, _ := f.facts(replica).decide()
	hint := ""
	if replica.Authority != "" && decided.voucher != announcement && decided.voucher != authority {
		hint = " (with a token, the CA in the replica's Lease is not trusted; set TrustAnnounced to trust it)"
	}
	if decided.name == coxswainName {
		hint += " (with ClusterCAFile, a token is sent only to a server with a certificate for " + CertificateName + ")"
	}
	return hint
}

// facts determine trust. Any account that can write Leases in kube-system can announce a replica with its own address and
// CA. An announcement is therefore sufficient for a client certificate, which a server cannot steal, but not for a token.
type facts struct {
	// The user set a CA.
	authority bool
	// The user allows sending a token to a replica that only its Lease identifies.
	trustAnnounced bool
	// The user set the server's address or name.
	named bool
	// The replica's Lease contains a CA.
	announced bool
	// The user set the cluster's CA.
	clusterAuthority bool
	// The caller has a token.
	token bool
	// The caller has a client certificate.
	certificate bool
}

// voucher is the source of the CA that verifies the server.
type voucher string

const (
	authority    voucher = "authority"
	announcement voucher = "announcement"
	cluster      voucher = "cluster"
	system       voucher = "system"
)

// CertificateName is the name in the serving certificates that the cluster's CA signs for Coxswain. Certificates of nodes
// must not contain it.
const CertificateName = "coxswain.kube-system.svc"

// nameRule determines the name to expect in a server's certificate.
type nameRule string

const (
	// addressName expects the host of the address, or Options.ServerName.
	addressName nameRule = "address"
	// coxswainName expects CertificateName, regardless of the address.
	coxswainName nameRule = "coxswain"
)

// decision is the result of decide.
type decision struct {
	voucher   voucher
	sendToken bool
	name      nameRule
}

// decide selects the CA and the name that verify a replica, and decides whether the token is sent. It is not ok if the
// token is the caller's only credential and the replica is not trusted with it. The command line has the same rules,
// which a test compares.
func (f facts) decide() (decided decision, ok bool) {
	// A caller without a token can call any server, because no credential can be stolen.
	givesNothingAway := f.certificate || !f.token
	vouched := true
	decided.name = addressName
	switch {
	case f.authority:
		decided.voucher = authority
	case f.announced && (f.trustAnnounced || givesNothingAway):
		decided.voucher, vouched = announcement, f.trustAnnounced
	case f.clusterAuthority:
		decided.voucher = cluster
		// The cluster's CA also signs for nodes: a token is sent only to a server with Coxswain's name, unless the user set
		// the server. With a client certificate, the host of the address is sufficient.
		if !f.named && !givesNothingAway {
			decided.name = coxswainName
		}
		vouched = f.named || decided.name == coxswainName
	default:
		// The system's CAs sign for any owner of a name, so the user must have set this server.
		decided.voucher, vouched = system, f.named
	}
	decided.sendToken = f.token && vouched
	return decided, decided.sendToken || givesNothingAway
}

// hostName matches valid hosts. The address comes from a Lease, so it must not contain a scheme of grpc.
var hostName = regexp.MustCompile(`^[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?$`)

func checkAddress(address string) error {
	host, port, err := net.SplitHostPort(address)
	number, notNumber := strconv.ParseUint(port, 10, 16)
	isHost := hostName.MatchString(host) || net.ParseIP(host) != nil
	if err != nil || notNumber != nil || number == 0 || !isHost {
		return fmt.Errorf("coxswain: replica address %q: expected HOST:PORT", address)
	}
	return nil
}
