// SPDX-License-Identifier: GPL-2.0-or-later
#include "kernel/wire/records.hpp"

#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <openssl/ssl.h>

#include <algorithm>

#include "kernel/trust/openssl.hpp"

namespace souk::wire {
namespace {

using Cipher = std::unique_ptr<EVP_CIPHER_CTX, trust::Free<EVP_CIPHER_CTX_free>>;

constexpr size_t header_bytes = 5, tag_bytes = 16, nonce_bytes = 12;
constexpr size_t clear_max = 16 * 1024;         // of one record
constexpr size_t sealed_max = clear_max + 256;  // with its type, zeros and tag
constexpr uint8_t alert = 21, handshake = 22, data = 23;
constexpr uint8_t ticket = 4, key_update = 24;  // of a handshake
constexpr int close_notify = 0, unexpected_message = 10, bad_record = 20;

const auto* unsigned_of(std::string_view text) {
    return reinterpret_cast<const unsigned char*>(text.data());
}

// HKDF-Expand-Label of RFC 8446 with an empty context, of at most one block of SHA-256.
std::string expand(std::string_view secret, std::string_view label, size_t bytes) {
    const std::string name = "tls13 " + std::string(label);
    std::string info = {static_cast<char>(bytes >> 8), static_cast<char>(bytes),
                        static_cast<char>(name.size())};
    info += name;
    info += std::string({'\0', '\1'});  // no context; the first block
    std::string out(SessionKeys::secret_bytes, '\0');
    unsigned length = 0;
    if (!HMAC(EVP_sha256(), secret.data(), static_cast<int>(secret.size()), unsigned_of(info),
              info.size(), reinterpret_cast<unsigned char*>(out.data()), &length))
        return {};
    out.resize(bytes);
    return out;
}

// Holds the state of one direction: its key, and the number of the next record.
class Way {
  public:
    static Result<Way> make(uint16_t cipher, std::string secret, bool seals) {
        Way way;
        way.cipher_ =
            cipher == SessionKeys::aes_128_gcm ? EVP_aes_128_gcm() : EVP_chacha20_poly1305();
        way.secret_ = std::move(secret);
        way.seals_ = seals;
        TRY(way.begin());
        return way;
    }
    Way(Way&&) = default;
    Way& operator=(Way&&) = default;
    ~Way() { OPENSSL_cleanse(secret_.data(), secret_.size()); }

    // A record of that type, behind what `wire` has.
    bool seal(uint8_t type, ByteView clear, Bytes& wire) {
        const size_t at = wire.size(), bytes = clear.size() + 1 + tag_bytes;
        wire.resize(at + header_bytes + bytes);
        uint8_t* const header = wire.data() + at;
        uint8_t* const body = header + header_bytes;
        const uint8_t head[] = {data, 3, 3, static_cast<uint8_t>(bytes >> 8),
                                static_cast<uint8_t>(bytes)};
        std::copy(std::begin(head), std::end(head), header);
        int n = 0;
        return next() && EVP_EncryptUpdate(ctx_.get(), nullptr, &n, header, header_bytes) == 1 &&
               (clear.empty() || EVP_EncryptUpdate(ctx_.get(), body, &n, clear.data(),
                                                   static_cast<int>(clear.size())) == 1) &&
               EVP_EncryptUpdate(ctx_.get(), body + clear.size(), &n, &type, 1) == 1 &&
               EVP_EncryptFinal_ex(ctx_.get(), body + clear.size() + 1, &n) == 1 &&
               EVP_CIPHER_CTX_ctrl(ctx_.get(), EVP_CTRL_AEAD_GET_TAG, tag_bytes,
                                   body + clear.size() + 1) == 1;
    }

    // Opens a whole record, header and all; `clear` has room for it. Returns its length without the
    // tag; 0: it is not what the peer sent.
    size_t open(ByteView record, uint8_t* clear) {
        const ByteView body =
            record.subspan(header_bytes, record.size() - header_bytes - tag_bytes);
        auto* const tag = const_cast<uint8_t*>(record.data() + record.size() - tag_bytes);
        int n = 0;
        const bool good =
            next() &&
            EVP_DecryptUpdate(ctx_.get(), nullptr, &n, record.data(), header_bytes) == 1 &&
            EVP_DecryptUpdate(ctx_.get(), clear, &n, body.data(), static_cast<int>(body.size())) ==
                1 &&
            EVP_CIPHER_CTX_ctrl(ctx_.get(), EVP_CTRL_AEAD_SET_TAG, tag_bytes, tag) == 1 &&
            EVP_DecryptFinal_ex(ctx_.get(), clear + body.size(), &n) == 1;
        return good ? body.size() : 0;
    }

    // The key after this one.
    Status update() {
        secret_ = expand(secret_, "traffic upd", SessionKeys::secret_bytes);
        return begin();
    }

  private:
    Way() = default;
    Status begin() {
        const auto bytes = static_cast<size_t>(EVP_CIPHER_get_key_length(cipher_));
        std::string key = expand(secret_, "key", bytes);
        iv_ = expand(secret_, "iv", nonce_bytes);
        number_ = 0;
        if (!ctx_) ctx_.reset(EVP_CIPHER_CTX_new());
        const bool good =
            ctx_ && key.size() == bytes && iv_.size() == nonce_bytes &&
            EVP_CipherInit_ex(ctx_.get(), cipher_, nullptr, unsigned_of(key), nullptr, seals_) == 1;
        OPENSSL_cleanse(key.data(), key.size());
        return good ? Status{} : Status(trust::fail_openssl("set up the keys of TLS"));
    }
    // Each record has a nonce of its own, and no number comes twice.
    bool next() {
        if (number_ == UINT64_MAX) return false;
        uint8_t nonce[nonce_bytes];
        std::copy_n(iv_.begin(), nonce_bytes, nonce);
        for (size_t i = 0; i < 8; ++i)
            nonce[nonce_bytes - 1 - i] ^= static_cast<uint8_t>(number_ >> (8 * i));
        ++number_;
        return EVP_CipherInit_ex(ctx_.get(), nullptr, nullptr, nullptr, nonce, seals_) == 1;
    }

    const EVP_CIPHER* cipher_ = nullptr;
    Cipher ctx_;
    std::string secret_, iv_;
    uint64_t number_ = 0;
    bool seals_ = false;
};

class Session final : public Transport {
  public:
    Session(Way in, Way out, trust::Peer peer)
        : in_(std::move(in)), out_(std::move(out)), peer_(std::move(peer)) {}

    Result<ByteView> open(ByteView wire, Bytes& reply) override {
        const size_t room = part_.size() + wire.size();
        if (clear_.size() < room) clear_.resize(room);
        have_ = 0;
        while (!wire.empty() && !ended_) {
            const auto record = whole(wire);
            if (!record) return refuse(unexpected_message, record.error(), reply);
            if (record->empty()) break;
            const Status taken = take(*record, reply);
            part_.clear();
            if (!taken) return tl::unexpected(taken.error());
        }
        return ByteView(clear_.data(), have_);
    }

    Result<Bytes> seal(Bytes&& clear) override {
        Bytes wire;
        wire.reserve(clear.size() + overhead(clear.size()));
        for (ByteView rest = clear; !rest.empty();) {
            const ByteView part = rest.first(std::min(rest.size(), clear_max));
            if (!out_.seal(data, part, wire)) return trust::fail_openssl("TLS");
            rest = rest.subspan(part.size());
        }
        return wire;
    }

    size_t overhead(size_t clear_bytes) const override {
        return (clear_bytes / clear_max + 1) * (header_bytes + 1 + tag_bytes);
    }
    const trust::Peer* peer() const override { return &peer_; }

  private:
    // The next record, taken off `wire`; empty: it is not all there, and `wire` has been kept.
    Result<ByteView> whole(ByteView& wire) {
        const auto fill = [&](size_t bytes) {
            if (part_.size() >= bytes) return;
            const size_t n = std::min(bytes - part_.size(), wire.size());
            part_.insert(part_.end(), wire.begin(), wire.begin() + static_cast<ptrdiff_t>(n));
            wire = wire.subspan(n);
        };
        const bool split = !part_.empty() || wire.size() < header_bytes;
        if (split) fill(header_bytes);
        const ByteView head = split ? ByteView(part_) : wire;
        if (head.size() < header_bytes) return ByteView{};
        const size_t body = static_cast<size_t>(head[3]) << 8 | head[4];
        if (head[0] != data || head[1] != 3)
            return fail("the peer sent what is no record of its TLS session");
        if (body <= tag_bytes || body > sealed_max)
            return fail("the peer sent a TLS record of a wrong length");
        const size_t bytes = header_bytes + body;
        if (!split && wire.size() >= bytes) {
            const ByteView record = wire.first(bytes);
            wire = wire.subspan(bytes);
            return record;
        }
        fill(bytes);
        return part_.size() < bytes ? ByteView{} : ByteView(part_);
    }

    Status take(ByteView record, Bytes& reply) {
        uint8_t* const clear = clear_.data() + have_;
        size_t bytes = in_.open(record, clear);
        if (bytes == 0)
            return refuse(bad_record, Error{0, "what the peer sent came damaged (TLS)"}, reply);
        while (bytes > 0 && clear[bytes - 1] == 0) --bytes;  // what hides its length
        if (bytes == 0 || bytes - 1 > clear_max)
            return refuse(unexpected_message, Error{0, "the peer sent a TLS record of no type"},
                          reply);
        const uint8_t type = clear[--bytes];
        if (type == data) {
            have_ += bytes;
            return {};
        }
        if (type == alert && bytes == 2) return hear(clear[1]);
        if (type == handshake && bytes > 0) return shake({clear, bytes}, reply);
        return refuse(unexpected_message, Error{0, "the peer sent a TLS record of a wrong type"},
                      reply);
    }

    Status hear(uint8_t what) {
        ended_ = true;
        if (what == close_notify) return {};
        const char* const said = alert_text(what);
        return fail(said ? said
                         : "the peer ends the session (TLS alert " + std::to_string(what) + ")");
    }

    // Deals with messages behind a handshake: tickets, which are not taken, and new keys.
    Status shake(ByteView message, Bytes& reply) {
        if (message[0] == ticket) return {};
        constexpr uint8_t update[] = {key_update, 0, 0, 1};
        if (message.size() != 5 ||
            !std::equal(std::begin(update), std::end(update), message.begin()) || message[4] > 1)
            return refuse(unexpected_message, Error{0, "the peer begins a TLS handshake anew"},
                          reply);
        TRY(in_.update());
        if (message[4] == 0) return {};
        constexpr uint8_t own[] = {key_update, 0, 0, 1, 0};
        if (!out_.seal(handshake, own, reply)) return trust::fail_openssl("TLS");
        return out_.update();
    }

    tl::unexpected<Error> refuse(int why, const Error& error, Bytes& reply) {
        const uint8_t words[] = {2, static_cast<uint8_t>(why)};
        (void)out_.seal(alert, words, reply);
        ended_ = true;
        return tl::unexpected(error);
    }

    Way in_, out_;
    const trust::Peer peer_;
    Bytes part_;   // of a record that is not all there
    Bytes clear_;  // what open() gives out
    size_t have_ = 0;
    bool ended_ = false;  // what the peer sends behind its last word is not heard
};

}  // namespace

const char* alert_text(int alert) {
    switch (alert) {
        case SSL_AD_CERTIFICATE_EXPIRED:
            return "the peer refuses this end's certificate: it has ended; look at both clocks";
        case SSL_AD_CERTIFICATE_REVOKED:
            return "the peer refuses this end's certificate: it was revoked";
        case SSL_AD_UNKNOWN_CA:
            return "the peer refuses this end's certificate: it is of another market";
        case SSL_AD_BAD_CERTIFICATE:
            return "the peer refuses this end's certificate (its log says why; look at both "
                   "clocks)";
        case SSL_R_TLSV13_ALERT_CERTIFICATE_REQUIRED - SSL_AD_REASON_OFFSET:
            return "the peer wants a certificate, and this end has none";
        case SSL_AD_BAD_RECORD_MAC: return "what was sent came damaged, says the peer (TLS)";
        case SSL_AD_HANDSHAKE_FAILURE: return "the peer does not want this end (its log says why)";
        case SSL_AD_ACCESS_DENIED: return "the peer takes nobody of this name or role here";
        default: return nullptr;
    }
}

Result<std::unique_ptr<Transport>> session_transport(SessionKeys keys) {
    if (keys.cipher != SessionKeys::aes_128_gcm && keys.cipher != SessionKeys::chacha20_poly1305)
        return fail("a TLS session of an unknown cipher");
    if (keys.from_peer.size() != SessionKeys::secret_bytes ||
        keys.to_peer.size() != SessionKeys::secret_bytes)
        return fail("the secrets of a TLS session have another length");
    TRY_ASSIGN(Way in, Way::make(keys.cipher, std::move(keys.from_peer), false));
    TRY_ASSIGN(Way out, Way::make(keys.cipher, std::move(keys.to_peer), true));
    return std::unique_ptr<Transport>(
        std::make_unique<Session>(std::move(in), std::move(out), std::move(keys.peer)));
}

}  // namespace souk::wire
