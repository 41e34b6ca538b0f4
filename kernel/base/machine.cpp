// SPDX-License-Identifier: GPL-2.0-or-later
#include "kernel/base/machine.hpp"

#include <string_view>

namespace souk {
namespace {
std::string_view take_word(std::string_view& text) {
    const size_t end = text.find(' ');
    const std::string_view word = text.substr(0, end);
    text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
    return word;
}
}  // namespace

Status can_take(const Machine& here, const Machine& there) {
    if (here.architecture != there.architecture)
        return fail("the job needs a machine of type " + there.architecture + ", this is " +
                    here.architecture);
    if (here.page_bytes != there.page_bytes)
        return fail("the job needs pages of " + std::to_string(there.page_bytes) +
                    " bytes, here they have " + std::to_string(here.page_bytes));
    if (here.criu != there.criu)
        return fail("the job comes from CRIU " + there.criu + ", here is CRIU " + here.criu);
    std::string_view have = here.cpu_features, need = there.cpu_features, next = take_word(have);
    while (!need.empty()) {
        const std::string_view feature = take_word(need);
        while (!next.empty() && next < feature) next = take_word(have);
        if (next != feature)
            return fail("the job's CPU has " + std::string(feature) + ", this one has not");
    }
    return {};
}

}  // namespace souk
