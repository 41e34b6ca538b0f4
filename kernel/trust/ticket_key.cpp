// SPDX-License-Identifier: GPL-2.0-or-later
#include "kernel/trust/ticket_key.hpp"

#include <fcntl.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>

#include "kernel/base/number.hpp"
#include "kernel/sys/host/fd.hpp"

namespace souk::trust {
namespace {

constexpr size_t half_bytes = 32, ticket_name_bytes = 8, signature_bytes = 64, ring_max = 8;
constexpr size_t ring_bytes_max = 4096;
constexpr std::string_view mark = "souk ticket 1\n", ring_heading = "souk ticket keys 1\n";
constexpr const char* known_file = "/ticket-keys";

const unsigned char* raw(std::string_view bytes) {
    return reinterpret_cast<const unsigned char*>(bytes.data());
}

bool is_missing(const std::string& path) {
    struct stat s {};
    return ::stat(path.c_str(), &s) != 0 && errno == ENOENT;
}

// The lines of a text, each with its end; an error if the last has none.
Result<std::vector<std::string_view>> lines_of(std::string_view text) {
    std::vector<std::string_view> lines;
    while (!text.empty()) {
        const size_t end = text.find('\n');
        if (end == text.npos || lines.size() == ring_max)
            return fail("ticket keys: too many lines, or one without an end");
        lines.push_back(text.substr(0, end));
        text.remove_prefix(end + 1);
    }
    return lines;
}

Result<std::string> half_of(std::string_view digits) {
    auto half = from_hex(digits);
    if (!half || half->size() != half_bytes)
        return fail("ticket keys: a key that is not 64 hexadecimal digits");
    return half;
}

}  // namespace

Result<TicketKey> TicketKey::of(EVP_PKEY* key) {
    if (!key) return fail_openssl("a ticket key");
    TicketKey made({key, EVP_PKEY_free});
    TRY_ASSIGN(const std::string half, made.public_half());
    TRY_ASSIGN(made.name_, from_hex(sha256(half).substr(0, 2 * ticket_name_bytes)));
    return made;
}

Result<TicketKey> TicketKey::make() { return of(EVP_PKEY_Q_keygen(nullptr, nullptr, "ED25519")); }

Result<TicketKey> TicketKey::of_private(std::string_view half) {
    return of(EVP_PKEY_new_raw_private_key(EVP_PKEY_ED25519, nullptr, raw(half), half.size()));
}

Result<TicketKey> TicketKey::of_public(std::string_view half) {
    return of(EVP_PKEY_new_raw_public_key(EVP_PKEY_ED25519, nullptr, raw(half), half.size()));
}

Result<std::string> TicketKey::private_half() const {
    std::string half(half_bytes, '\0');
    size_t length = half.size();
    if (EVP_PKEY_get_raw_private_key(key_.get(), reinterpret_cast<unsigned char*>(half.data()),
                                     &length) != 1)
        return fail_openssl("a ticket key");
    return half;
}

Result<std::string> TicketKey::public_half() const {
    std::string half(half_bytes, '\0');
    size_t length = half.size();
    if (EVP_PKEY_get_raw_public_key(key_.get(), reinterpret_cast<unsigned char*>(half.data()),
                                    &length) != 1)
        return fail_openssl("a ticket key");
    return half;
}

Result<std::string> TicketKey::sign(std::string_view bytes) const {
    const DigestPtr context(EVP_MD_CTX_new());
    std::string signature(signature_bytes, '\0');
    size_t length = signature.size();
    if (!context || EVP_DigestSignInit(context.get(), nullptr, nullptr, nullptr, key_.get()) != 1 ||
        EVP_DigestSign(context.get(), reinterpret_cast<unsigned char*>(signature.data()), &length,
                       raw(bytes), bytes.size()) != 1)
        return fail_openssl("sign a ticket");
    return signature;
}

bool TicketKey::has_signed(std::string_view bytes, std::string_view signature) const {
    const DigestPtr context(EVP_MD_CTX_new());
    const bool right =
        context &&
        EVP_DigestVerifyInit(context.get(), nullptr, nullptr, nullptr, key_.get()) == 1 &&
        EVP_DigestVerify(context.get(), raw(signature), signature.size(), raw(bytes),
                         bytes.size()) == 1;
    if (!right) (void)fail_openssl("");  // the queue of errors is empty afterwards
    return right;
}

// -------------------------------------------------------------------------------------------------
// the market's

Status TicketRing::parse(std::string_view text) {
    if (!text.starts_with(ring_heading)) return fail("these are no ticket keys");
    TRY_ASSIGN(const auto lines, lines_of(text.substr(ring_heading.size())));
    for (const std::string_view line : lines) {
        const size_t gap = line.rfind(' ');
        if (!line.starts_with("key ") || gap < 4) return fail("ticket keys: an unknown line");
        TRY_ASSIGN(const std::string half, half_of(line.substr(4, gap - 4)));
        const auto begins = whole_number<int64_t>(line.substr(gap + 1));
        if (!begins || *begins < 0 || *begins > INT64_MAX / 1'000'000'000)
            return fail("ticket keys: a key without its time");
        TRY_ASSIGN(TicketKey key, TicketKey::of_private(half));
        keys_.push_back({std::move(key), Nanos::from_s(*begins)});
    }
    if (keys_.empty()) return fail("ticket keys: there is none");
    std::sort(keys_.begin(), keys_.end(),
              [](const Dated& a, const Dated& b) { return a.begins < b.begins; });
    return {};
}

Status TicketRing::save() const {
    std::string text(ring_heading);
    for (const Dated& d : keys_) {
        TRY_ASSIGN(const std::string half, d.key.private_half());
        text += "key " + hex(half) + " " + std::to_string(d.begins.ns / 1'000'000'000) + "\n";
    }
    return replace_file(path_, text, 0600, true);
}

Status TicketRing::add(Nanos begins) {
    TRY_ASSIGN(TicketKey key, TicketKey::make());
    keys_.push_back({std::move(key), begins});
    return {};
}

Result<TicketRing> TicketRing::open(const std::string& dir, Nanos now) {
    TicketRing ring(dir + "/ticket.keys");
    if (is_missing(ring.path_)) {
        TRY(ring.add(now));
        TRY(ring.save());
        return ring;
    }
    struct stat s {};
    if (::stat(ring.path_.c_str(), &s) != 0) return fail_errno(ring.path_, errno);
    if ((s.st_mode & 077) != 0)
        return fail(ring.path_ + " can be read by others than its owner: chmod 600 " + ring.path_);
    TRY_ASSIGN(const std::string text, read_file(AT_FDCWD, ring.path_, ring_bytes_max));
    if (const Status parsed = ring.parse(text); !parsed) return wrap(ring.path_, parsed.error());
    return ring;
}

// One that does not sign yet is the newest; after a long rest the clock may be past all of them.
Result<bool> TicketRing::turn(Nanos now) {
    const auto before = keys_;
    if (keys_.back().begins + ticket_key_life - ticket_key_overlap <= now)
        TRY(add(now + ticket_key_overlap));
    while (keys_.size() > 1 && keys_[1].begins + ticket_key_overlap <= now)
        keys_.erase(keys_.begin());
    const bool same = keys_.size() == before.size() && keys_.back().begins == before.back().begins;
    if (same) return false;
    if (const Status saved = save(); !saved) {
        keys_ = before;
        return tl::unexpected(saved.error());
    }
    return true;
}

Result<std::string> TicketRing::seal(std::string_view body, Nanos now) const {
    const TicketKey* key = &keys_.front().key;
    for (const Dated& d : keys_)
        if (d.begins <= now) key = &d.key;
    TRY_ASSIGN(const std::string signature, key->sign(std::string(mark) + std::string(body)));
    return std::string(mark) + key->name() + signature + std::string(body);
}

Result<std::string> TicketRing::public_text() const {
    std::string text;
    for (const Dated& d : keys_) {
        TRY_ASSIGN(const std::string half, d.key.public_half());
        text += "key " + hex(half) + "\n";
    }
    return text;
}

// -------------------------------------------------------------------------------------------------
// a node's

Result<TicketKeys> TicketKeys::parse(std::string_view text) {
    TicketKeys keys;
    TRY_ASSIGN(const auto lines, lines_of(text));
    for (const std::string_view line : lines) {
        if (!line.starts_with("key ")) return fail("ticket keys: an unknown line");
        TRY_ASSIGN(const std::string half, half_of(line.substr(4)));
        TRY_ASSIGN(TicketKey key, TicketKey::of_public(half));
        keys.keys_.push_back(std::move(key));
    }
    return keys;
}

Result<std::string_view> TicketKeys::open(std::string_view sealed) const {
    if (keys_.empty()) return fail("this node has not been told the market's ticket keys yet");
    constexpr size_t body_at = mark.size() + ticket_name_bytes + signature_bytes;
    if (!sealed.starts_with(mark) || sealed.size() < body_at) return fail("this is no ticket");
    const std::string_view name = sealed.substr(mark.size(), ticket_name_bytes),
                           signature =
                               sealed.substr(mark.size() + ticket_name_bytes, signature_bytes),
                           body = sealed.substr(body_at);
    const auto key = std::find_if(keys_.begin(), keys_.end(),
                                  [&](const TicketKey& k) { return k.name() == name; });
    if (key == keys_.end()) return fail("the ticket is of a key that this market does not use");
    if (!key->has_signed(std::string(mark) + std::string(body), signature))
        return fail("the market has not signed this ticket");
    return body;
}

Status save_ticket_keys(const std::string& dir, std::string_view text) {
    return replace_file(dir + known_file, text, 0644, true);
}

Result<TicketKeys> load_ticket_keys(const std::string& dir) {
    if (is_missing(dir + known_file)) return TicketKeys{};
    TRY_ASSIGN(const std::string text, read_file(AT_FDCWD, dir + known_file, ring_bytes_max));
    auto keys = TicketKeys::parse(text);
    if (!keys) return wrap(dir + known_file, keys.error());
    return keys;
}

}  // namespace souk::trust
