// SPDX-License-Identifier: GPL-2.0-or-later
// The owner's file of users: whatever it holds, there is a map or one line, and nobody is root.
#include <algorithm>

#include "agentd/core/user_map.hpp"
#include "tests/fuzz/fuzz.hpp"

namespace {

using namespace souk;

// Each name is somebody: by its length, also root and those whose number means "as before".
struct Anybody final : Accounts {
    std::optional<Account> named(const std::string& name) const override {
        const uint32_t ids[] = {1500, 0, 999, 1000, no_id, 2000};
        return Account{name, ids[name.size() % 6], ids[name.size() / 6 % 6]};
    }
    std::optional<Account> numbered(uint32_t uid) const override { return Account{"x", uid, uid}; }
    std::vector<uint32_t> groups_of(const Account& a) const override { return {a.gid, 0, 27}; }
    std::string group_name(uint32_t gid) const override { return gid == 27 ? "sudo" : ""; }
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
    const std::string_view text(reinterpret_cast<const char*>(data), size);
    const auto map = UserMap::parse(text, {"uni", 1000, {"*"}});
    one_line(map);
    if (!map) return 0;
    const Anybody anybody;
    (void)map->describe(anybody);
    // Names from the file itself.
    const size_t slash = text.find('/'), sign = text.find_first_of(" =", slash + 1);
    const std::string realm(text.substr(0, slash));
    const std::string user(slash < text.size() ? text.substr(slash + 1, sign - slash - 1) : "");
    for (const char* of : {"", "uni", realm.c_str()})
        for (const uint32_t uid : {0U, 1000U, no_id}) {
            const auto as = map->begins({of, user, uid, uid, {0}}, anybody);
            if (!as) continue;
            REQUIRE(as->uid >= 1000 && as->uid != no_id && as->gid >= 1000 && as->gid != no_id);
            REQUIRE(std::none_of(as->groups.begin(), as->groups.end(),
                                 [](uint32_t gid) { return gid == 0 || gid == 27; }));
        }
    return 0;
}
