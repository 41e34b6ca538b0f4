// SPDX-License-Identifier: GPL-2.0-or-later
#include "market/core/resource_text.hpp"

#include <algorithm>

#include "kernel/base/number.hpp"
#include "market/core/named_resources.hpp"

namespace souk {

namespace {

std::string_view without_blanks(std::string_view text) {
    while (text.starts_with(' ')) text.remove_prefix(1);
    while (text.ends_with(' ')) text.remove_suffix(1);
    return text;
}

Result<ResourceNeed> resource_need(std::string_view item) {
    const size_t sign = item.find('=');
    ResourceNeed need{std::string(without_blanks(item.substr(0, sign))), 1};
    if (!valid_resource_name(need.name))
        return fail("'" + need.name +
                    "' is no name of a resource: a letter, then letters, digits, '-' and '_'");
    if (sign == item.npos) return need;
    constexpr int64_t most = market::NamedAmount::count_max;
    const auto count = whole_number<int64_t>(without_blanks(item.substr(sign + 1)));
    if (!count || *count < 1 || *count > most)
        return fail(need.name + ": '" + std::string(item.substr(sign + 1)) +
                    "' is no count from 1 to " + std::to_string(most));
    need.count = *count;
    return need;
}

// A job is told of both by one variable, so it could not tell them apart.
template <class Named>
Status check_variables(const std::vector<Named>& all) {
    std::map<std::string, std::string> names;
    for (const Named& one : all)
        if (const auto [at, is_new] = names.emplace(resource_variable(one.name), one.name); !is_new)
            return fail(at->second + " and " + one.name + " are one variable of a job, " +
                        at->first + ": give one of them another name");
    return {};
}

}  // namespace

std::string resource_variable(const std::string& name) {
    std::string variable = "SOUK_RESOURCE_" + name;
    for (char& c : variable) {
        if (c >= 'a' && c <= 'z') c = static_cast<char>(c - 'a' + 'A');
        if (c == '-') c = '_';
    }
    return variable;
}

bool valid_resource_name(std::string_view name) {
    constexpr size_t longest = 31;
    const auto is_letter = [](char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); };
    return !name.empty() && name.size() <= longest && is_letter(name[0]) &&
           std::all_of(name.begin(), name.end(), [&](char c) {
               return is_letter(c) || (c >= '0' && c <= '9') || c == '-' || c == '_';
           });
}

Result<std::vector<ResourceNeed>> parse_resources(std::string_view text) {
    if (text.size() > resource_text_max)
        return fail("more than " + std::to_string(resource_text_max) + " bytes");
    std::vector<ResourceNeed> all;
    for (bool more = !without_blanks(text).empty(); more;) {
        const std::string_view item = text.substr(0, text.find(','));
        TRY_ASSIGN(ResourceNeed need, resource_need(item));
        const auto at =
            std::lower_bound(all.begin(), all.end(), need.name,
                             [](const ResourceNeed& n, const auto& name) { return n.name < name; });
        if (at != all.end() && at->name == need.name) return fail(need.name + " comes twice");
        all.insert(at, std::move(need));
        if (all.size() > resources_max)
            return fail("more than " + std::to_string(resources_max) + " resources");
        more = item.size() < text.size();
        if (more) text.remove_prefix(item.size() + 1);
    }
    TRY(check_variables(all));
    return all;
}

Result<std::vector<ResourceOffer>> resource_offers(const ResourceTable& counts,
                                                   const ResourceTable& reserves) {
    std::vector<ResourceOffer> all;
    for (const auto& [name, text] : counts) {
        TRY_ASSIGN(const ResourceNeed one, resource_need(name + "=" + text));
        all.push_back({one.name, one.count});
    }
    if (all.size() > resources_max)
        return fail("more than " + std::to_string(resources_max) + " resources");
    for (const auto& [name, text] : reserves) {
        const auto offer = std::ranges::find(all, name, &ResourceOffer::name);
        if (offer == all.end()) return fail(name + " has a reserve, and no count in `resources`");
        const auto reserve = parse_money(text);
        if (!reserve) return wrap(name, reserve.error());
        offer->reserve = *reserve;
    }
    TRY(check_variables(all));
    return all;
}

std::string resources_text(const std::vector<ResourceNeed>& needs) {
    std::string all;
    for (const ResourceNeed& need : needs)
        all += (all.empty() ? "" : ",") + need.name + "=" + std::to_string(need.count);
    return all;
}

}  // namespace souk
