// SPDX-License-Identifier: GPL-2.0-or-later
// Enrolment: whom the market certifies. A joiner with a token that is good, a node that renews with
// the key that it has, an operator whom root adds; and which keys were revoked. What it changes is
// in the journal when a call returns: who answers waits for the commit (kernel/base/journal.hpp).
// Owned by Marketd, if it has certificates.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "kernel/sys/store/journal_db.hpp"
#include "kernel/trust/identity.hpp"
#include "kernel/trust/verify.hpp"
#include "kernel/trust/vouched_users.hpp"
#include "kernel/wire/messages.hpp"
#include "market/store/trust_records.hpp"

namespace souk {

class Enrolment {
  public:
    // `dir`: of the market's identity. The issuing authority's key is there.
    static Result<std::unique_ptr<Enrolment>> open(JournalDb& state, const std::string& dir,
                                                   const trust::Identity& identity);

    Result<wire::Certified> join(const NodeName& name, const wire::Join& join, Nanos now);
    // Somebody who is certified, perhaps not by this process: known from now on.
    void met(const trust::Peer& who, Nanos now);
    // Whether a node of that name may come without a certificate, in the time when nodes may.
    Status may_lack(const NodeName& name) const;
    Result<wire::Certified> renew(const trust::Peer& who, const wire::Renew& renew, Nanos now);
    // The market's own next certificate, with the issuing authority's.
    Result<std::vector<trust::Certificate>> renew_own(const trust::Identity& own, Nanos now) const;

    // Whether the home with that key may bring jobs of that user, and of whom it may. One whose
    // token names nobody may for those of the market's own realm: not for numbers that tokens of
    // other realms name.
    bool may_vouch(const std::string& key, uint32_t uid) const;
    std::string users_of(const std::string& key) const;
    // Whether its word counts that this user has that name. A name that a token gives a number is
    // that number's, and its number has no other, whoever says it. Other names are for the homes
    // of a realm to say, in the market's own realm for those that speak for all of it.
    bool may_name(const std::string& key, uint32_t uid, const std::string& name) const;
    // A token gives that name another number, in the realm of that home.
    bool is_of_another(const std::string& key, uint32_t uid, const std::string& name) const;

    // A verb of root's (tools/common/replies.md) and its answer in JSON; `takes` says which.
    static bool takes(const std::string& verb);
    Result<std::string> answer(const std::string& verb, const std::vector<std::string>& args,
                               Nanos now);

    // The keys that tickets are signed with, as the market's signed word. True: they are others
    // than before.
    Result<bool> list_tickets(const std::string& keys, Nanos now);
    const std::string& ticket_list() const { return ticket_list_; }

    // Whose keys count no more, and the same as the market's signed word.
    const trust::Revocations& revoked() const { return revoked_; }
    const std::string& signed_list() const { return signed_list_; }

  private:
    Enrolment(JournalDb& state, std::string dir, trust::Authority issuing,
              const trust::Certificate& root)
        : state_(state),
          dir_(std::move(dir)),
          issuing_(std::move(issuing)),
          root_(root.digest()),
          root_pem_(root.pem()),
          site_(root.site()) {}
    const std::string& realm_text(const std::string& realm) const {
        return realm.empty() ? site_ : realm;
    }
    Status load();
    Status forget_others();
    Status sign_list();
    Result<wire::Certified> certify(const trust::Request& request, trust::Roles roles,
                                    const std::string& scope, Nanos now,
                                    Nanos life = trust::leaf_life);
    void speaks_for(const std::string& key, const std::string& users);
    void keep(const Member& member);
    const Member* holder_of(const std::string& name) const;

    Result<std::string> create_token(const std::vector<std::string>& args, Nanos now);
    Result<std::string> withdraw_token(const std::vector<std::string>& args);
    std::string list_tokens(Nanos now) const;
    std::string list_members(Nanos now) const;
    Result<std::string> revoke(const std::vector<std::string>& args);
    Result<std::string> add_operator(const std::vector<std::string>& args, Nanos now);

    JournalDb& state_;
    const std::string dir_;
    trust::Authority issuing_;
    std::string root_;  // its digest
    const std::string root_pem_, site_;
    std::map<std::string, trust::TokenRecord> tokens_;
    std::map<std::string, Member> members_;  // by key
    // Whom the tokens of members name, read when it is asked for the first time since one changed.
    struct Vouched {
        struct Realm {
            std::map<std::string, uint32_t> numbers;
            std::map<uint32_t, std::string> names;
        };
        std::map<std::string, Realm> realms;
        // numbers of other realms than the market's own: first to last, sorted and apart
        std::map<uint32_t, uint32_t> others;
        // by key; of one whose token names nobody there is none, and null if it cannot be read
        std::map<std::string, std::optional<trust::VouchedUsers>> of;
    };
    const Vouched& vouched() const;
    Status names_fit(const std::string& realm, const trust::VouchedUsers& users) const;
    mutable std::optional<Vouched> vouched_;
    trust::Revocations revoked_;
    std::string signed_list_, ticket_list_;
};

}  // namespace souk
