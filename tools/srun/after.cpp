// SPDX-License-Identifier: GPL-2.0-or-later
#include "tools/srun/after.hpp"

#include <string_view>
#include <vector>

#include "kernel/base/ids.hpp"

namespace souk::tools {
namespace {

constexpr Nanos home_answers_within = Nanos::from_s(30);

struct Item {
    std::string id;
    JobAfter after;
};

Result<Item> item_of(std::string_view text) {
    const size_t colon = text.find(':');
    Item item{std::string(text.substr(0, colon)), {}};
    TRY(parse_job_id(item.id, "x"));
    if (colon == text.npos) return item;
    const std::string_view how = text.substr(colon + 1);
    if (how != "ok" && how != "notok" && how != "any" && how != "each")
        return fail("'" + std::string(how) + "' is none of ok, notok, any and each");
    item.after.each = how == "each";
    item.after.how = how == "notok" ? JobAfter::How::badly
                     : how == "any" ? JobAfter::How::ended
                                    : JobAfter::How::well;
    return item;
}

Result<std::vector<Item>> items_of(const std::string& after) {
    const bool any = after.find('?') != after.npos;
    if (any && after.find(',') != after.npos)
        return fail("all of several jobs (,) or one of them (?), not both");
    std::vector<Item> items;
    for (std::string_view rest = after;;) {
        const std::string_view one = rest.substr(0, rest.find(any ? '?' : ','));
        TRY_ASSIGN(Item item, item_of(one));
        items.push_back(std::move(item));
        if (one.size() == rest.size()) return items;
        rest.remove_prefix(one.size() + 1);
    }
}

}  // namespace

Status check_after(const std::string& after, bool of_array) {
    if (after.empty()) return {};
    TRY_ASSIGN(const auto items, items_of(after));
    for (const Item& item : items)
        if (item.after.each && !of_array)
            return fail("'each' is for --array: each element waits for that of its index");
    return {};
}

Status take_after(Link& link, const std::string& after, wire::Submit& request) {
    if (after.empty()) return {};
    TRY_ASSIGN(const auto items, items_of(after));
    request.group.after_any = after.find('?') != after.npos;
    TRY_ASSIGN(const std::string node, link.peer_name(home_answers_within));
    for (const Item& item : items) {
        auto id = parse_job_id(item.id, node);
        if (!id) return wrap("--after", id.error());
        if (id->home != node)
            return fail(CauseCode::invalid, "--after: job " + id->text() +
                                                " was submitted on another node than " + node);
        JobAfter one = item.after;
        one.seq = id->seq;
        const bool plain = items.size() == 1 && !one.each && one.how != JobAfter::How::badly;
        if (!plain) {
            request.group.afters.push_back(one);
            continue;
        }
        request.group.after = one.seq;  // homes of older versions know this
        request.group.after_ok = one.how == JobAfter::How::well;
    }
    return {};
}

}  // namespace souk::tools
