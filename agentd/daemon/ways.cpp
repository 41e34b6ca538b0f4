// SPDX-License-Identifier: GPL-2.0-or-later
#include "agentd/daemon/ways.hpp"

#include <algorithm>
#include <utility>

#include "kernel/base/node_address.hpp"

namespace souk {
namespace {

constexpr Nanos direct_limit = Nanos::from_s(1), left_out_for = Nanos::from_s(600);
constexpr size_t left_out_max = 1'024;

}  // namespace

struct Way::Attempt : std::enable_shared_from_this<Attempt> {
    Attempt(Ways& all, const Peer& to, std::function<void(Result<Fd>)> fn)
        : ways(all), peer(to), done(std::move(fn)) {}

    Status go_direct(const std::string& direct, Nanos limit, bool has_gateway) {
        TRY_ASSIGN(const Address address, Address::parse(direct));
        const auto self = weak_from_this();
        TRY_ASSIGN(connecting,
                   ways.loop_.connect(address, limit, [self, has_gateway](Result<Fd> socket) {
                       const auto alive = self.lock();
                       if (!alive) return;
                       alive->connecting.close();
                       if (socket || !has_gateway) return alive->end(std::move(socket));
                       alive->ways.leave_out(alive->key());
                       alive->go_by_gateway();
                   }));
        return {};
    }

    void go_by_gateway() {
        const auto self = weak_from_this();
        by_gateway = true;
        const std::string gateway = NodeAddress::parted(peer.address).gateway;
        question = ways.gateways_->ask(gateway, peer.node, true, [self](Result<Fd> socket) {
            const auto alive = self.lock();
            if (!alive) return;
            alive->question = 0;
            // The network may have changed: the next attempt begins with the first way.
            if (!socket) alive->ways.left_out_.erase(alive->key());
            alive->end(std::move(socket));
        });
    }

    void end(Result<Fd> result) {
        if (const auto fn = std::exchange(done, nullptr)) fn(std::move(result));
    }

    void close() {
        done = nullptr;
        connecting.close();
        if (question != 0) ways.gateways_->forget(std::exchange(question, 0));
    }

    Ways::Key key() const { return {peer.node, peer.address}; }

    Ways& ways;
    const Peer peer;
    std::function<void(Result<Fd>)> done;
    Connect connecting;
    uint64_t question = 0;
    bool by_gateway = false;
};

Way& Way::operator=(Way&& other) noexcept {
    if (this != &other) {
        close();
        attempt_ = std::move(other.attempt_);
    }
    return *this;
}

void Way::close() {
    if (const auto attempt = std::exchange(attempt_, nullptr)) attempt->close();
}

bool Way::is_by_gateway() const { return attempt_ && attempt_->by_gateway; }

bool Ways::goes_by_gateway(const Key& to) const {
    const auto it = left_out_.find(to);
    return it != left_out_.end() && Loop::now() < it->second;
}

void Ways::leave_out(const Key& to) {
    if (left_out_.size() >= left_out_max)
        std::erase_if(left_out_, [](const auto& one) { return one.second <= Loop::now(); });
    if (left_out_.size() >= left_out_max) left_out_.clear();
    left_out_[to] = Loop::now() + left_out_for;
}

Result<Way> Ways::connect(const Peer& peer, Nanos limit, std::function<void(Result<Fd>)> done) {
    const NodeAddress address = NodeAddress::parted(peer.address);
    const bool has_gateway = gateways_ && !address.gateway.empty();
    const auto attempt = std::make_shared<Way::Attempt>(*this, peer, std::move(done));
    if (has_gateway && goes_by_gateway(attempt->key()))
        attempt->go_by_gateway();
    else
        TRY(attempt->go_direct(address.direct, has_gateway ? std::min(limit, direct_limit) : limit,
                               has_gateway));
    return Way(attempt);
}

bool Ways::failed(const Peer& peer, bool by_gateway) {
    if (!gateways_ || NodeAddress::parted(peer.address).gateway.empty()) return false;
    if (by_gateway)
        left_out_.erase({peer.node, peer.address});
    else
        leave_out({peer.node, peer.address});
    return !by_gateway;
}

}  // namespace souk
