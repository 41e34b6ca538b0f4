// SPDX-License-Identifier: GPL-2.0-or-later
// Every message after unpack: the first byte says which. What is accepted must pack to bytes that
// are accepted again and pack to the same bytes.
#include <cstdlib>
#include <string_view>

#include "agentd/store/records.hpp"
#include "market/wire/site_codec.hpp"

namespace {

template <class T>
void one(std::string_view bytes) {
    const auto message = souk::wire::unpack<T>(bytes);
    if (!message) return;
    const std::string packed = souk::wire::pack(*message);
    const auto again = souk::wire::unpack<T>(packed);
    if (!again || souk::wire::pack(*again) != packed) std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
    using namespace souk;
    using namespace souk::wire;
    if (size == 0) return 0;
    constexpr void (*messages[])(std::string_view) = {
#define X(T, ...) one<T>,
        SOUK_COMMON_WORDS(X) SOUK_MARKET_WORDS(X) SOUK_SITE_WORDS(X) SOUK_AGENT_WORDS(X)
#undef X
            one<HomeJob>,
        one<GuestJob>};
    messages[data[0] % std::size(messages)]({reinterpret_cast<const char*>(data) + 1, size - 1});
    return 0;
}
