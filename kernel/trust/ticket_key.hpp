// SPDX-License-Identifier: GPL-2.0-or-later
// Ticket keys: what the market signs orders with (market/core/ticket.hpp), and how nodes know them.
// Ed25519: signing needs no random number, and no key of a certificate can sign a ticket. On one
// core of a server 36,000 are signed a second, and 14,000 verified.
//
// What is sealed is bytes: a mark, the name of the key, the signature, and the body. A ring is the
// market's: a file `ticket.keys` beside its certificate, mode 0600, one line for each key:
//
//   souk ticket keys 1
//   key PRIVATE-HALF UNIX-SECONDS
//
// A key signs from its second on, until the next one's. A key is followed by another after 30 days;
// the next one is told to the nodes a day before it signs, and the last one is known for a day
// after it has. To remove the file ends all tickets that are under way: the market makes new keys.
//
// Keys are a node's: the public halves, which the market tells it over their connection:
//
//   key PUBLIC-HALF
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "kernel/base/time.hpp"
#include "kernel/trust/openssl.hpp"

namespace souk::trust {

class TicketKey {
  public:
    static Result<TicketKey> make();
    // The private half and the public half have 32 bytes each.
    static Result<TicketKey> of_private(std::string_view half);
    static Result<TicketKey> of_public(std::string_view half);
    Result<std::string> private_half() const;
    Result<std::string> public_half() const;
    const std::string& name() const { return name_; }  // 8 bytes, by the public half

    Result<std::string> sign(std::string_view bytes) const;
    bool has_signed(std::string_view bytes, std::string_view signature) const;

  private:
    static Result<TicketKey> of(EVP_PKEY* key);
    explicit TicketKey(std::shared_ptr<EVP_PKEY> key) : key_(std::move(key)) {}
    std::shared_ptr<EVP_PKEY> key_;
    std::string name_;
};

inline constexpr Nanos ticket_key_life = Nanos::from_s(30 * 86'400),
                       ticket_key_overlap = Nanos::from_s(86'400);

// A market signs its tickets with these keys.
class TicketRing {
  public:
    // Opens the keys in that directory; makes the first key there if there is none.
    static Result<TicketRing> open(const std::string& dir, Nanos now);
    // Changes keys when it is time. True: the keys are others than before, and are in the file.
    Result<bool> turn(Nanos now);
    Result<std::string> seal(std::string_view body, Nanos now) const;
    Result<std::string> public_text() const;

  private:
    struct Dated {
        TicketKey key;
        Nanos begins;
    };
    explicit TicketRing(std::string path) : path_(std::move(path)) {}
    Status parse(std::string_view text);
    Status save() const;
    Status add(Nanos begins);
    std::string path_;
    std::vector<Dated> keys_;  // by the time from which on they sign
};

// A node's.
class TicketKeys {
  public:
    static Result<TicketKeys> parse(std::string_view text);
    // The body, if one of these keys has signed it.
    Result<std::string_view> open(std::string_view sealed) const;
    size_t size() const { return keys_.size(); }

  private:
    std::vector<TicketKey> keys_;
};
// These are in the directory of a node's identity. No file yet: no keys.
Status save_ticket_keys(const std::string& dir, std::string_view text);
Result<TicketKeys> load_ticket_keys(const std::string& dir);

}  // namespace souk::trust
