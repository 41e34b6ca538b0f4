// SPDX-License-Identifier: GPL-2.0-or-later
#include "tools/common/entries.hpp"

namespace souk::tools {

Status for_each_entry(const Answer& answer, const std::function<void(const Json& entry)>& each) {
    for (const std::string& part : answer) {
        const Json list = parse_json(part);
        if (!list.is_array()) return fail("the daemon's answer is not a list");
        for (const Json& entry : list) each(entry);
    }
    return {};
}

std::string all_of_entry(const Json& entry) {
    std::vector<std::pair<std::string, std::string>> rows;
    for (const auto& [key, value] : entry.items()) {
        if (value.empty() && !value.is_number() && !value.is_boolean()) continue;
        if (value.is_string() && value.get_ref<const std::string&>().empty()) continue;
        rows.emplace_back(key, value.is_object() ? value.dump() : field(entry, key.c_str()));
    }
    return lines(rows);
}

std::string words(std::initializer_list<std::string> all) {
    std::string text;
    for (const std::string& word : all)
        if (!word.empty() && word != "-") text += (text.empty() ? "" : " ") + word;
    return text.empty() ? "-" : text;
}

}  // namespace souk::tools
