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
	// leaseAnnotation is the Lease by which the replica leads, as "NAMESPACE/NAME", and the replica's identity.
	leaseAnnotation = "coxswain.dev/lease"

	// DefaultLeaseName is the Lease by which the leader leads, unless the manager is told otherwise
	// (--leader-elect-resource-name).
	DefaultLeaseName = "kube-controller-manager"
	// DefaultLeaseNamespace is the namespace of that Lease (--leader-elect-resource-namespace).
	DefaultLeaseNamespace = "kube-system"
)

// Replica is a running Coxswain that serves the admin API.
type Replica struct {
	// Name is that of its Lease; empty if none told of it.
	Name string
	// Identity is its own in the leader election; empty if no Lease told of it.
	Identity string
	// Address is "host:port" of its admin API.
	Address string
	// Authority (PEM) is what its Lease says vouches for it; empty if its Lease says nothing. Whoever may write Leases
	// may have written it.
	Authority string
	// Leads is whether it holds the Lease by which the leader leads.
	Leads bool
}

// String is the replica in words.
func (r Replica) String() string {
	if r.Identity == "" {
		return r.Address
	}
	return r.Identity + " at " + r.Address
}

// Replicas are what the Leases tell.
type Replicas struct {
	// Candidates may be called: the leader first, then the others by identity. Replicas that seem dead are among them
	// only if all do, for it may be this machine's clock.
	Candidates []Replica
	// PassedOver says who else there is, and why they are not called.
	PassedOver []string
	// Holder is the identity of who leads, a manager of another make perhaps; empty if nobody does, or if the caller
	// may not know.
	Holder string
}

// Finder finds the replicas, and connects to them as somebody whom it does not give away.
type Finder struct {
	// Leases tells which replicas there are.
	Leases Leases
	// Addresses names replicas ("host:port") in place of Leases. The one that leads is found all the same, for each
	// of them tells.
	Addresses []string
	// Options say who one is, and whom to trust whatever a Lease says.
	Options Options
	// ClusterCAFile holds the cluster's authorities (PEM), those of the API server. They are trusted at a replica that
	// Options.CA, Options.CAFile and the replica's own Lease name no authority for. They sign the certificates of nodes as
	// well, so a token goes only to a server whose certificate is for CertificateName and is not a node's.
	ClusterCAFile string
	// TrustAnnounced sends a token to a replica that only its own Lease vouches for. Whoever may write Leases in
	// kube-system can then get it. A client certificate gives nothing away, and needs no such consent.
	TrustAnnounced bool
	// LeaseName and LeaseNamespace are those of the Lease by which the leader leads; empty for DefaultLeaseName and
	// DefaultLeaseNamespace.
	LeaseName, LeaseNamespace string

	// now is the time; nil for that of this machine.
	now func() time.Time
}

// ErrNotVouchedFor is the error of a replica that a token is not sent to.
var ErrNotVouchedFor = errors.New("coxswain: only its Lease says that it is a replica, and a token is not sent on that " +
	"alone: set Options.CAFile, Options.ServerName, a client certificate, ClusterCAFile, or TrustAnnounced")

func (f Finder) check() error {
	if (f.Leases == nil) == (len(f.Addresses) == 0) {
		return errors.New("coxswain: of Leases and Addresses exactly one is to be set")
	}
	return nil
}

// Replicas reads the Leases, and tells which replicas to call and which not.
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
	// Without it, those who answer know who leads.
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

// leads returns the Lease by which a replica leads. A replica of an older version announces none: it is the one that it
// holds, and else the default one.
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

// choose decides whom to call of the replicas that lead by the Lease main.
func choose(leases []Lease, main, holder string, now time.Time) Replicas {
	type silent struct {
		Replica
		// For how long; negative if for ever.
		since time.Duration
	}
	replicas := Replicas{Holder: holder}
	var dead []silent
	for _, lease := range leases {
		// A Lease without a holder was given up: its replica has ended.
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
			replicas.PassedOver = append(replicas.PassedOver, replica.Identity+" leads by another Lease, "+other)
		case replica.Address == "":
			replicas.PassedOver = append(replicas.PassedOver, replica.Identity+" serves no admin API")
		case lease.RenewTime.IsZero():
			dead = append(dead, silent{replica, -1})
			replicas.PassedOver = append(replicas.PassedOver, replica.Identity+" has never given a sign of life")
		case since > lease.LeaseDuration:
			dead = append(dead, silent{replica, since})
			text := fmt.Sprintf("%s has given no sign of life for %s", replica.Identity, since.Truncate(time.Second))
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
		// As numbers without a sign, so that for ever comes last.
		slices.SortFunc(dead, func(a, b silent) int {
			return cmp.Or(cmp.Compare(uint64(a.since), uint64(b.since)), cmp.Compare(a.Identity, b.Identity))
		})
		for _, each := range dead {
			replicas.Candidates = append(replicas.Candidates, each.Replica)
		}
	}
	return replicas
}

// Connect makes a client of a replica, with the credentials that it may see. The error is ErrNotVouchedFor if that would
// be none.
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
		return nil, fmt.Errorf("with the authority that the Lease of %s announces: %w", replica, err)
	}
	return client, err
}

func (f Finder) facts(replica Replica) facts {
	return facts{
		authority:      f.Options.CAFile != "" || f.Options.CA != nil,
		trustAnnounced: f.TrustAnnounced,
		// Not whom a named replica names as the leader: that address is what a Lease says.
		named:            slices.Contains(f.Addresses, replica.Address) || f.Options.ServerName != "",
		announced:        replica.Authority != "",
		clusterAuthority: f.ClusterCAFile != "",
		token:            f.Options.hasToken(),
		certificate:      f.Options.CertFile != "",
	}
}

// hint is what to say when a replica can't be reached because the authority that it announces was not trusted, or because
// its certificate is that of a node.
func (f Finder) hint(replica Replica) string {
	decided, _ := f.facts(replica).decide()
	hint := ""
	if replica.Authority != "" && decided.voucher != announcement && decided.voucher != authority {
		hint = " (the authority that its Lease announces is not trusted with a token, unless TrustAnnounced is set)"
	}
	if decided.name == coxswainName {
		hint += " (with ClusterCAFile a token is sent only to a server with a certificate for " + CertificateName + ")"
	}
	return hint
}

// facts decide about trust. Whoever may write Leases in kube-system may announce a replica, its address and its
// authority. So an announcement is good for client certificates, which prove the caller without giving anything away,
// and not for tokens, which are the caller to whoever holds them.
type facts struct {
	// The user has named an authority.
	authority bool
	// The user trusts announcements with a token.
	trustAnnounced bool
	// The user has named the server.
	named bool
	// The replica announces an authority.
	announced bool
	// The user has named the cluster's authority.
	clusterAuthority bool
	// The caller has a token.
	token bool
	// The caller has a client certificate.
	certificate bool
}

// voucher is whose word it is that a server is who it says.
type voucher string

const (
	authority    voucher = "authority"
	announcement voucher = "announcement"
	cluster      voucher = "cluster"
	system       voucher = "system"
)

// CertificateName is in the serving certificates of Coxswain that the cluster's CA signs, and in no certificate of a node.
const CertificateName = "coxswain.kube-system.svc"

// nameRule is the name that a server's certificate must have.
type nameRule string

const (
	// addressName is the host of the address, or Options.ServerName.
	addressName nameRule = "address"
	// coxswainName is CertificateName, whatever the address is.
	coxswainName nameRule = "coxswain"
)

// decision is what follows from the facts.
type decision struct {
	voucher   voucher
	sendToken bool
	name      nameRule
}

// decide says who vouches for a replica, by which name, and whether the token goes to it. It is not ok if nobody vouches
// for it and the token is all that the caller has. The command line has the same rule; a test sees to that.
func (f facts) decide() (decided decision, ok bool) {
	// Who has nothing to give away may ask anybody: the answer is a refusal.
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
		// The cluster's CA vouches for nodes as well: only a server with Coxswain's name gets a token, unless the user
		// has named it. A client certificate needs no other name than that of the address.
		if !f.named && !givesNothingAway {
			decided.name = coxswainName
		}
		vouched = f.named || decided.name == coxswainName
	default:
		// The system's authorities vouch for names, and anybody may have one: the user has to have named this one.
		decided.voucher, vouched = system, f.named
	}
	decided.sendToken = f.token && vouched
	return decided, decided.sendToken || givesNothingAway
}

// hostName is what a host may look like. A Lease says where to call, so nothing may pass that grpc takes for a scheme.
var hostName = regexp.MustCompile(`^[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?$`)

func checkAddress(address string) error {
	host, port, err := net.SplitHostPort(address)
	number, notNumber := strconv.ParseUint(port, 10, 16)
	isHost := hostName.MatchString(host) || net.ParseIP(host) != nil
	if err != nil || notNumber != nil || number == 0 || !isHost {
		return fmt.Errorf("coxswain: %q is no address of a replica: HOST:PORT is allowed", address)
	}
	return nil
}
