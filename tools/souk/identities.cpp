// SPDX-License-Identifier: GPL-2.0-or-later
#include "tools/souk/identities.hpp"

#include "kernel/sys/host/clock.hpp"

namespace souk {
namespace {

// The certificate of what lives in `dir`, which holds or gets its key.
Status certify(const std::string& dir, const trust::Subject& subject,
               const trust::Authority& issuing, const trust::Certificate& root) {
    TRY(trust::make_private_dir(dir));
    TRY_ASSIGN(const trust::Key key, trust::key_of(dir));
    TRY_ASSIGN(const auto own, trust::issue(issuing, key, subject, unix_now()));
    return trust::save_identity(dir, {key, {own, issuing.certificate}, root, {}});
}

}  // namespace

Result<trust::Authority> make_market_identity(const std::string& dir, const std::string& name) {
    TRY(trust::make_private_dir(dir));
    TRY_ASSIGN(auto root, trust::make_root(name, unix_now()));
    TRY_ASSIGN(const auto issuing, trust::make_issuing(root, name, unix_now()));
    TRY(trust::save_issuing(dir, issuing));
    TRY(certify(dir, {"market", trust::only(trust::Role::market)}, issuing, root.certificate));
    return root;
}

Status make_identities(const Instance& instance) {
    const std::string market = instance.market.state + "/identity";
    TRY_ASSIGN(auto there, trust::load_identity(market));
    if (!there) {
        // The root's key goes with this process: whoever loses the CA of one host makes a new one.
        TRY(make_market_identity(market, instance.tag));
        TRY_ASSIGN(there, trust::load_identity(market));
    }
    TRY_ASSIGN(const auto issuing, trust::load_issuing(market));
    const trust::Subject itself{"market", trust::only(trust::Role::market)};
    TRY(certify(market, itself, issuing, there->root));
    for (const Daemon& d : instance.nodes)
        TRY(certify(d.state + "/identity", {d.name, trust::node_roles}, issuing, there->root));
    return {};
}

}  // namespace souk
