// SPDX-License-Identifier: GPL-2.0-or-later
// TLS 1.3 for every connection that leaves a host, by OpenSSL over memory: the event loop moves the
// bytes. Both ends have certificates (kernel/trust); no session is resumed, so each connection is
// checked against the newest list of revocations. AES-128-GCM where the processor has it, records
// of up to 16 KiB.
//
// A handshake is bounded: in time by the channel (first_frame_limit), in bytes here. What is wrong
// with a peer is one line; the peer gets the alert that fits, and says in its own log what it
// means.
//
// Tls is owned by the daemon and outlives its transports; the certificate may be replaced, and the
// list of revocations, at any time: connections that stand are the daemon's to end.
#pragma once

#include <map>
#include <memory>
#include <string>

#include "kernel/trust/identity.hpp"
#include "kernel/trust/verify.hpp"
#include "kernel/wire/records.hpp"
#include "kernel/wire/transport.hpp"

namespace souk::wire {

// A handshake whose connection goes on elsewhere: with the keys that came of it (records.hpp). It
// must be given no byte behind its last record.
class TlsHandshake : public Transport {
  public:
    // May be called once peer() is known.
    virtual Result<SessionKeys> hand_over() const = 0;
};

// Does the handshakes for a Tls that does none itself.
class TlsElsewhere {
  public:
    virtual ~TlsElsewhere() = default;
    virtual std::unique_ptr<Transport> connector(trust::Roles roles, std::string name) = 0;
    virtual std::unique_ptr<Transport> acceptor() = 0;
    // These count from the next handshake on.
    virtual Status renewed(const trust::Identity& identity) = 0;
    virtual void know_sites(const std::map<std::string, std::string>& sites) = 0;
};

// These of another site are somebody here.
enum class OfSites : uint8_t { markets, nodes };

class Tls {
  public:
    struct Options {
        // An acceptor takes peers without a certificate too (peer() is null then), and shows them
        // its root: they want to join.
        bool takes_strangers = false;
        // Handshakes are done there; it outlives this.
        TlsElsewhere* elsewhere = nullptr;
    };
    static Result<std::unique_ptr<Tls>> open(trust::Identity identity, Options options);
    // Opens a Tls for a node without a certificate yet; it believes the root with that digest
    // alone.
    static Result<std::unique_ptr<Tls>> open_stranger(std::string root_digest);
    ~Tls();
    Tls(const Tls&) = delete;

    // Connects to a peer that must have one of these roles, and that name (empty: any).
    std::unique_ptr<Transport> connector(trust::Roles roles, std::string name);
    std::unique_ptr<Transport> acceptor();
    // These do the same, for a handshake that is handed over.
    std::unique_ptr<TlsHandshake> connecting(trust::Roles roles, std::string name);
    std::unique_ptr<TlsHandshake> accepting();

    // Null if the Tls is a stranger's.
    const trust::Identity* identity() const;
    // These count from the next handshake on.
    Status renew(std::vector<trust::Certificate> chain);
    void revoke(trust::Revocations revoked);
    // The roots of other sites, by their digests, and the names of these sites. A peer whose
    // certificates one of them has signed is, to a market, the market of that site, which is
    // trust::Role::site of that name here and nothing else; to a node it is a node of that site
    // (trust::Peer::site), as a home or a provider and nothing else. Both ends show their root
    // then. These count from the next handshake on, too. Errors: of a node, whose context cannot be
    // made anew.
    Status know_sites(std::map<std::string, std::string> sites, OfSites who);
    // Returns the root that a stranger has recognised as a market's.
    const trust::Certificate* root() const;

  private:
    struct Inside;
    friend class TlsSession;
    explicit Tls(std::unique_ptr<Inside> inside);
    std::unique_ptr<Inside> inside_;
};

// Makes the transports of a daemon: of `tls`, or plain ones where it is null (insecure = true).
std::unique_ptr<Transport> connector(Tls* tls, trust::Roles roles, std::string name);
std::unique_ptr<Transport> acceptor(Tls* tls);

// Opens what a daemon's configuration asks for: null if it is insecure, else the identity in `dir`.
// The error says what is missing there, and `how` to make it.
Result<std::unique_ptr<Tls>> open_tls(const std::string& dir, bool insecure, const char* how,
                                      Tls::Options options);

}  // namespace souk::wire
