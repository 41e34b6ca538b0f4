// SPDX-License-Identifier: GPL-2.0-or-later
#include "kernel/wire/tls.hpp"

#include <openssl/err.h>
#include <openssl/ssl.h>

#include <algorithm>
#include <optional>

#include "kernel/base/check.hpp"
#include "kernel/sys/host/clock.hpp"
#include "kernel/trust/known_chains.hpp"

namespace souk::wire {
namespace {

using Context = std::unique_ptr<SSL_CTX, trust::Free<SSL_CTX_free>>;
using Ssl = std::unique_ptr<SSL, trust::Free<SSL_free>>;

constexpr size_t handshake_bytes_max = 64 * 1024, kept_bytes_max = 64 * 1024;
constexpr size_t record_bytes = 16 * 1024;
// A record's header, its type and its tag; and a handshake's last ones may come before.
constexpr size_t record_overhead = 32, first_overhead = 512;

bool has_aes() {
#if defined(__x86_64__)
    return __builtin_cpu_supports("aes") != 0;
#else
    return true;  // of the processors that Debian runs on, those of this size have it
#endif
}

// The two ends of a session read and write these, in place of a socket.
struct Ends {
    ByteView in;
    Bytes* out = nullptr;
};

int ends_read(BIO* bio, char* to, int bytes) {
    auto& ends = *static_cast<Ends*>(BIO_get_data(bio));
    BIO_clear_retry_flags(bio);
    const size_t part = std::min(ends.in.size(), static_cast<size_t>(std::max(bytes, 0)));
    if (part == 0) {
        BIO_set_retry_read(bio);
        return -1;
    }
    std::copy_n(ends.in.begin(), part, reinterpret_cast<uint8_t*>(to));
    ends.in = ends.in.subspan(part);
    return static_cast<int>(part);
}

int ends_write(BIO* bio, const char* from, int bytes) {
    auto& ends = *static_cast<Ends*>(BIO_get_data(bio));
    BIO_clear_retry_flags(bio);
    if (!ends.out) return -1;
    const auto* const first = reinterpret_cast<const uint8_t*>(from);  // one type: copied at once
    ends.out->insert(ends.out->end(), first, first + bytes);
    return bytes;
}

long ends_control(BIO*, int command, long, void*) { return command == BIO_CTRL_FLUSH ? 1 : 0; }

const BIO_METHOD* ends_method() {
    static BIO_METHOD* const method = [] {
        BIO_METHOD* m = BIO_meth_new(BIO_get_new_index() | BIO_TYPE_SOURCE_SINK, "souk");
        MUST(m && BIO_meth_set_read(m, ends_read) && BIO_meth_set_write(m, ends_write) &&
             BIO_meth_set_ctrl(m, ends_control));
        return m;
    }();
    return method;
}

tl::unexpected<Error> tls_error() {
    const unsigned long code = ERR_peek_error();
    const int reason = ERR_GET_REASON(code);
    if (reason == SSL_R_WRONG_VERSION_NUMBER || reason == SSL_R_HTTP_REQUEST ||
        reason == SSL_R_UNSUPPORTED_PROTOCOL || reason == SSL_R_UNEXPECTED_MESSAGE ||
        reason == SSL_R_BAD_RECORD_TYPE) {
        ERR_clear_error();
        return fail("the peer does not speak TLS 1.3: an older version, or one that is insecure?");
    }
    if (reason == SSL_R_DECRYPTION_FAILED_OR_BAD_RECORD_MAC) {
        ERR_clear_error();
        return fail("what the peer sent came damaged (TLS)");
    }
    if (reason > SSL_AD_REASON_OFFSET)
        if (const char* said = alert_text(reason - SSL_AD_REASON_OFFSET)) {
            ERR_clear_error();
            return fail(said);
        }
    return trust::fail_openssl("TLS");
}

}  // namespace

struct Tls::Inside {
    Options options;
    std::optional<trust::Identity> identity;
    std::string root_digest;  // of a stranger's market
    std::optional<trust::Certificate> root;
    Context context;
    Bytes clear;  // what a session has decrypted, until the next one's turn

    trust::KnownChains known;
    std::map<std::string, std::string> sites;
    OfSites of_sites = OfSites::markets;

    Status make_context();
    // The certificate among these that is the root of a site; null: none is.
    const trust::Certificate* site_root(const std::vector<trust::Certificate>& chain) const;
    Result<trust::Peer> verify_site(const std::vector<trust::Certificate>& chain,
                                    const trust::Certificate& its_root);
    Result<trust::Peer> verify(const std::vector<trust::Certificate>& chain);
};

// ---- one connection

class TlsSession final : public TlsHandshake {
  public:
    TlsSession(Tls::Inside& tls, bool connects, trust::Roles roles, std::string name)
        : tls_(tls), connects_(connects), roles_(roles), name_(std::move(name)) {
        ssl_.reset(SSL_new(tls.context.get()));
        BIO* const bio = BIO_new(ends_method());
        MUST(ssl_ && bio);
        BIO_set_data(bio, &ends_);
        BIO_set_init(bio, 1);
        SSL_set_bio(ssl_.get(), bio, bio);
        SSL_set_app_data(ssl_.get(), this);
        if (connects)
            SSL_set_connect_state(ssl_.get());
        else
            SSL_set_accept_state(ssl_.get());
    }

    Result<ByteView> open(ByteView wire, Bytes& reply) override {
        ends_ = {wire, &reply};
        auto clear = read(wire.size());
        ends_ = {};
        return clear;
    }

    Result<Bytes> seal(Bytes&& clear) override {
        Bytes wire;
        ends_ = {{}, &wire};
        const Status sealed = write(std::move(clear));
        ends_ = {};
        if (!sealed) return tl::unexpected(sealed.error());
        return wire;
    }

    size_t overhead(size_t clear_bytes) const override {
        return first_overhead + kept_.size() + (clear_bytes / record_bytes + 1) * record_overhead;
    }
    const trust::Peer* peer() const override { return done_ && peer_ ? &*peer_ : nullptr; }
    const char* awaits() const override {
        return done_ ? "the peer connected and said nothing" : "no TLS handshake in time";
    }

    Result<SessionKeys> hand_over() const override {
        if (!peer()) return fail("a TLS handshake that is not done");
        SessionKeys keys;
        keys.cipher = SSL_CIPHER_get_protocol_id(SSL_get_current_cipher(ssl_.get()));
        keys.from_peer = connects_ ? of_server_ : of_client_;
        keys.to_peer = connects_ ? of_client_ : of_server_;
        keys.peer = *peer_;
        return keys;
    }

    // Called by OpenSSL with each secret of a session, as lines of a key log: a label, the random
    // number of the client, the secret.
    static void secret(const SSL* ssl, const char* line) {
        auto* const self = static_cast<TlsSession*>(SSL_get_app_data(ssl));
        const std::string_view text = line;
        const auto digits = trust::from_hex(text.substr(text.rfind(' ') + 1));
        if (!self || !digits) return;
        if (text.starts_with("CLIENT_TRAFFIC_SECRET_0 ")) self->of_client_ = *digits;
        if (text.starts_with("SERVER_TRAFFIC_SECRET_0 ")) self->of_server_ = *digits;
    }

    // Called by OpenSSL in the handshake.
    static int verify(X509_STORE_CTX* store, void*) {
        const auto* ssl = static_cast<SSL*>(
            X509_STORE_CTX_get_ex_data(store, SSL_get_ex_data_X509_STORE_CTX_idx()));
        auto* const self = static_cast<TlsSession*>(SSL_get_app_data(ssl));
        const Status good = self->examine(store);
        if (good) return 1;
        self->refusal_ = good.error();
        X509_STORE_CTX_set_error(
            store, good.error().code ? good.error().code : X509_V_ERR_APPLICATION_VERIFICATION);
        return 0;
    }

  private:
    Status examine(X509_STORE_CTX* store) {
        std::vector<trust::Certificate> chain;
        const auto add = [&](X509* c) -> Status {
            X509_up_ref(c);
            TRY_ASSIGN(auto one, trust::Certificate::of({c, X509_free}));
            chain.push_back(std::move(one));
            return {};
        };
        X509* const leaf = X509_STORE_CTX_get0_cert(store);
        TRY(add(leaf));
        STACK_OF(X509)* const sent = X509_STORE_CTX_get0_untrusted(store);
        for (int i = 0; i < sk_X509_num(sent); ++i)
            if (X509* c = sk_X509_value(sent, i); X509_cmp(c, leaf) != 0) TRY(add(c));
        TRY_ASSIGN(peer_, tls_.verify(chain));
        const trust::Subject& is = peer_->subject;
        const auto refuse = [](std::string why) {
            return tl::unexpected(Error{X509_V_ERR_APPLICATION_VERIFICATION, std::move(why)});
        };
        if ((is.roles.bits & roles_.bits) == 0)
            return refuse("the peer is " + is.name + " (" + trust::text_of(is.roles) + "), not " +
                          trust::text_of(roles_));
        if (const std::string name = peer_->full_name(); !name_.empty() && name != name_)
            return refuse("the peer is " + name + ", not " + name_);
        return {};
    }

    // Runs the handshake as far as it goes. Returns whether it is done.
    Result<bool> shake() {
        if (done_) return true;
        ERR_clear_error();
        const int status = SSL_do_handshake(ssl_.get());
        if (status == 1) {
            done_ = true;
            if (!kept_.empty()) TRY(write(std::exchange(kept_, {})));
            return true;
        }
        const int why = SSL_get_error(ssl_.get(), status);
        if (why == SSL_ERROR_WANT_READ) return false;
        if (refusal_) {
            ERR_clear_error();
            return tl::unexpected(*refusal_);
        }
        return tls_error();
    }

    Status write(Bytes&& clear) {
        TRY_ASSIGN(const bool done, shake());
        if (!done) {
            if (kept_.size() + clear.size() > kept_bytes_max)
                return fail("too much is said before the TLS handshake is done");
            kept_.insert(kept_.end(), clear.begin(), clear.end());
            return {};
        }
        if (clear.empty()) return {};
        ends_.out->reserve(ends_.out->size() + clear.size() + overhead(clear.size()));
        ERR_clear_error();
        size_t written = 0;
        if (SSL_write_ex(ssl_.get(), clear.data(), clear.size(), &written) != 1 ||
            written != clear.size())
            return tls_error();
        return {};
    }

    Result<ByteView> read(size_t wire_bytes) {
        if (!done_) {
            shaken_ += wire_bytes;
            TRY_ASSIGN(const bool done, shake());
            if (!done && shaken_ > handshake_bytes_max)
                return fail("a TLS handshake of too many bytes");
            if (!done) return ByteView{};
        }
        Bytes& clear = tls_.clear;
        const size_t room = wire_bytes + record_bytes;
        if (clear.size() < room) clear.resize(room);
        size_t have = 0;
        for (;;) {
            ERR_clear_error();
            size_t got = 0;
            const int status =
                SSL_read_ex(ssl_.get(), clear.data() + have, clear.size() - have, &got);
            have += got;
            if (status == 1) continue;
            const int why = SSL_get_error(ssl_.get(), status);
            if (why == SSL_ERROR_WANT_READ || why == SSL_ERROR_ZERO_RETURN) break;
            return tls_error();
        }
        return ByteView(clear.data(), have);
    }

    Tls::Inside& tls_;
    const bool connects_;
    const trust::Roles roles_;
    const std::string name_;
    Ssl ssl_;
    Ends ends_;
    bool done_ = false;
    size_t shaken_ = 0;  // bytes that came before the handshake was done
    Bytes kept_;
    std::optional<trust::Peer> peer_;
    std::optional<Error> refusal_;
    std::string of_client_, of_server_;  // secrets of what each sends
};

// ---- all connections

Status Tls::Inside::make_context() {
    if (options.elsewhere) return options.elsewhere->renewed(*identity);
    Context c(SSL_CTX_new(TLS_method()));
    const char* const ciphers = has_aes() ? "TLS_AES_128_GCM_SHA256:TLS_CHACHA20_POLY1305_SHA256"
                                          : "TLS_CHACHA20_POLY1305_SHA256:TLS_AES_128_GCM_SHA256";
    if (!c || SSL_CTX_set_min_proto_version(c.get(), TLS1_3_VERSION) != 1 ||
        SSL_CTX_set_ciphersuites(c.get(), ciphers) != 1 ||
        SSL_CTX_set1_groups_list(c.get(), "X25519") != 1 ||
        SSL_CTX_set1_sigalgs_list(c.get(), "ECDSA+SHA256") != 1 ||
        SSL_CTX_set_num_tickets(c.get(), 0) != 1)
        return trust::fail_openssl("set up TLS");
    SSL_CTX_set_options(c.get(), SSL_OP_NO_TICKET | SSL_OP_NO_RENEGOTIATION);
    SSL_CTX_set_session_cache_mode(c.get(), SSL_SESS_CACHE_OFF);
    SSL_CTX_set_mode(c.get(), SSL_MODE_RELEASE_BUFFERS);
    SSL_CTX_set_keylog_callback(c.get(), TlsSession::secret);
    SSL_CTX_set_cert_verify_callback(c.get(), TlsSession::verify, nullptr);
    SSL_CTX_set_verify(
        c.get(), SSL_VERIFY_PEER | (options.takes_strangers ? 0 : SSL_VERIFY_FAIL_IF_NO_PEER_CERT),
        nullptr);
    if (identity) {
        if (SSL_CTX_use_certificate(c.get(), identity->own().raw()) != 1 ||
            SSL_CTX_use_PrivateKey(c.get(), identity->key.raw()) != 1)
            return trust::fail_openssl("set up TLS");
        std::vector<trust::Certificate> above(identity->chain.begin() + 1, identity->chain.end());
        const bool meets_sites = of_sites == OfSites::nodes && !sites.empty();
        if (options.takes_strangers || meets_sites) above.push_back(identity->root);
        for (const trust::Certificate& one : above)
            if (SSL_CTX_add1_chain_cert(c.get(), one.raw()) != 1)
                return trust::fail_openssl("set up TLS");
    }
    context = std::move(c);
    return {};
}

const trust::Certificate* Tls::Inside::site_root(
    const std::vector<trust::Certificate>& chain) const {
    if (sites.empty()) return nullptr;
    for (const trust::Certificate& one : chain)
        if (sites.contains(one.digest())) return &one;
    return nullptr;
}

// Another site's root is good for its market alone, or for its nodes alone. What the market is
// called there says nothing here.
Result<trust::Peer> Tls::Inside::verify_site(const std::vector<trust::Certificate>& chain,
                                             const trust::Certificate& its_root) {
    const std::string& site = sites.at(its_root.digest());
    auto peer = known.verify(chain, its_root, {}, unix_now());
    if (!peer)
        return tl::unexpected(
            Error{peer.error().code, "site " + site + ": " + peer.error().message});
    if (of_sites == OfSites::nodes) {
        peer->subject.roles.bits &= trust::node_roles.bits;
        peer->subject.scope.clear();
        peer->site = site;
        if (peer->subject.roles.bits != 0) return peer;
        return tl::unexpected(Error{
            X509_V_ERR_APPLICATION_VERIFICATION,
            "site " + site + ": its nodes alone may call here, and not " + peer->subject.name});
    }
    if (peer->subject.roles != trust::only(trust::Role::market))
        return tl::unexpected(Error{X509_V_ERR_APPLICATION_VERIFICATION,
                                    "site " + site + ": its market alone may call here, and not " +
                                        trust::text_of(peer->subject.roles) + " " +
                                        peer->subject.name});
    peer->subject = {site, trust::only(trust::Role::site)};
    return peer;
}

Result<trust::Peer> Tls::Inside::verify(const std::vector<trust::Certificate>& chain) {
    // This site's own root comes first, so that no card of a peer keeps an own node out.
    const trust::Certificate* const of_site = site_root(chain);
    if (identity) {
        auto own = known.verify(chain, identity->root, identity->revoked, unix_now());
        return own || !of_site ? std::move(own) : verify_site(chain, *of_site);
    }
    if (of_site) return verify_site(chain, *of_site);
    TRY_ASSIGN(root, trust::root_among(chain, root_digest));
    return trust::verify(chain, *root, {}, unix_now());
}

Tls::Tls(std::unique_ptr<Inside> inside) : inside_(std::move(inside)) {}
Tls::~Tls() = default;

Result<std::unique_ptr<Tls>> Tls::open(trust::Identity identity, Options options) {
    auto inside = std::make_unique<Inside>();
    inside->options = options;
    inside->identity = std::move(identity);
    TRY(inside->make_context());
    return std::unique_ptr<Tls>(new Tls(std::move(inside)));
}

Result<std::unique_ptr<Tls>> Tls::open_stranger(std::string root_digest) {
    auto inside = std::make_unique<Inside>();
    inside->root_digest = std::move(root_digest);
    TRY(inside->make_context());
    return std::unique_ptr<Tls>(new Tls(std::move(inside)));
}

std::unique_ptr<Transport> Tls::connector(trust::Roles roles, std::string name) {
    if (inside_->options.elsewhere)
        return inside_->options.elsewhere->connector(roles, std::move(name));
    return connecting(roles, std::move(name));
}

std::unique_ptr<Transport> Tls::acceptor() {
    if (inside_->options.elsewhere) return inside_->options.elsewhere->acceptor();
    return accepting();
}

std::unique_ptr<TlsHandshake> Tls::connecting(trust::Roles roles, std::string name) {
    return std::make_unique<TlsSession>(*inside_, true, roles, std::move(name));
}

std::unique_ptr<TlsHandshake> Tls::accepting() {
    const trust::Roles any{0xff};
    return std::make_unique<TlsSession>(*inside_, false, any, std::string());
}

const trust::Identity* Tls::identity() const {
    return inside_->identity ? &*inside_->identity : nullptr;
}

const trust::Certificate* Tls::root() const { return inside_->root ? &*inside_->root : nullptr; }

Status Tls::renew(std::vector<trust::Certificate> chain) {
    MUST(inside_->identity && !chain.empty());
    auto before = std::exchange(inside_->identity->chain, std::move(chain));
    Status made = inside_->make_context();
    if (!made) inside_->identity->chain = std::move(before);
    return made;
}

void Tls::revoke(trust::Revocations revoked) {
    MUST(inside_->identity);
    inside_->identity->revoked = std::move(revoked);
    // who is not reached there begins anew, with what holds then
    if (inside_->options.elsewhere) (void)inside_->options.elsewhere->renewed(*inside_->identity);
}

Status Tls::know_sites(std::map<std::string, std::string> sites, OfSites who) {
    inside_->sites = std::move(sites);
    inside_->of_sites = who;
    if (TlsElsewhere* const elsewhere = inside_->options.elsewhere) {
        elsewhere->know_sites(inside_->sites);
        return {};
    }
    return who == OfSites::nodes ? inside_->make_context() : Status();
}

std::unique_ptr<Transport> connector(Tls* tls, trust::Roles roles, std::string name) {
    return tls ? tls->connector(roles, std::move(name)) : plain_transport();
}

std::unique_ptr<Transport> acceptor(Tls* tls) { return tls ? tls->acceptor() : plain_transport(); }

Result<std::unique_ptr<Tls>> open_tls(const std::string& dir, bool insecure, const char* how,
                                      Tls::Options options) {
    if (insecure) return std::unique_ptr<Tls>();
    TRY_ASSIGN(auto identity, trust::load_identity(dir));
    if (!identity)
        return fail("no certificate in " + dir + ": make one with `" + how +
                    "`; or, where everybody who reaches this port may act as root, say "
                    "`insecure = true`");
    return Tls::open(std::move(*identity), options);
}

}  // namespace souk::wire
