// SPDX-License-Identifier: GPL-2.0-or-later
#include "kernel/wire/either.hpp"

#include <utility>

namespace souk::wire {
namespace {

class Either final : public Transport {
  public:
    explicit Either(std::unique_ptr<Transport> tls) : tls_(std::move(tls)) {}

    Result<ByteView> open(ByteView wire, Bytes& reply) override {
        if (chosen_) return chosen_->open(wire, reply);
        first_.insert(first_.end(), wire.begin(), wire.end());
        if (first_.size() < told_by) return ByteView{};
        const bool is_tls = first_[0] == 22 && first_[1] == 3 && first_[2] != 0;
        chosen_ = is_tls ? std::move(tls_) : plain_transport();
        return chosen_->open(first_, reply);  // which stay as they are
    }
    // We send nothing to a peer before we have heard it, because we do not know yet whether it
    // speaks TLS.
    Result<Bytes> seal(Bytes&& clear) override {
        return chosen_ ? chosen_->seal(std::move(clear)) : Bytes{};
    }
    bool passes_through() const override { return false; }
    size_t overhead(size_t clear_bytes) const override {
        return chosen_ ? chosen_->overhead(clear_bytes) : 0;
    }
    const trust::Peer* peer() const override { return chosen_ ? chosen_->peer() : nullptr; }
    const char* awaits() const override {
        return chosen_ ? chosen_->awaits() : Transport::awaits();
    }

  private:
    static constexpr size_t told_by = 3;
    std::unique_ptr<Transport> tls_, chosen_;
    Bytes first_;
};

}  // namespace

std::unique_ptr<Transport> either_transport(std::unique_ptr<Transport> tls) {
    return std::make_unique<Either>(std::move(tls));
}

}  // namespace souk::wire
