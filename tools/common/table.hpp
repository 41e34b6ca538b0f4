// SPDX-License-Identifier: GPL-2.0-or-later
// A daemon's JSON as text for people. Only .cpp files of tools that print answers include this: it
// brings nlohmann-json. The parser costs more to compile than the header, so parse_json() alone has
// it.
#pragma once

#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <vector>

#include "kernel/base/result.hpp"
#include "tools/common/ask.hpp"

namespace souk::tools {

using Json = nlohmann::ordered_json;

// Discarded where the text is not JSON.
Json parse_json(std::string_view text);
// Errors: not JSON, or not an object.
Result<Json> parse_object(const Answer& answer);

// The value of a key: a string as it is, a number shortest, a list with commas; "-" where there is
// none.
std::string field(const Json& object, const char* key);
// Money that was reckoned (an estimate, a mean), with the digits that say something; what was paid
// is exact, and `field` shows it.
std::string rounded_money(const Json& object, const char* key);
// Seconds as people read them: "3.2s", "12m05s", "5h07m"; "-" where there is none.
std::string duration(const Json& object, const char* key);
// Unix seconds as "2026-11-20 08:00:00", local; "-" where there is none.
std::string local_time(const Json& object, const char* key);
// Thousandths as percent: "42%".
std::string milliseconds(const Json& object, const char* key);  // "12.3 ms", "24.0s"
std::string bytes(const Json& object, const char* key);         // "4.2 MB"
// Memory in units of 1,048,576 bytes, as it is asked for: "512 MB", "1.5 GB".
std::string megabytes(const Json& object, const char* key);
std::string percent(const Json& object, const char* key);
// Returns near_group of a node, and how near the group is, as far as that is known.
std::string near_text(const Json& node);
// Returns the memory of a node: "512 MB/7.8 GB", "3.1/7.8 GB"; "-" where it is not known.
std::string free_memory(const Json& node);
// Says how much of a job that moves, or of all jobs that leave a node, has been sent: "640 MB of
// 1.2 GB, 55 MB/s"; "-": nothing is being sent.
std::string sent(const Json& object);
// Returns a node's status, and while guests leave it "off, 2 of 5 guests have left".
std::string node_state(const Json& node);

// Columns two blanks apart, numbers to the right. What is "-" is shown as "none". No newline at the
// end.
class Table {
  public:
    struct Column {
        const char* title;
        bool right = false;
        bool state = false;  // on a terminal it has the colour of its state
    };
    explicit Table(std::vector<Column> columns) : columns_(std::move(columns)) {}
    void add(std::vector<std::string> row) { rows_.push_back(std::move(row)); }
    std::string text() const;

    // Writes the table with a row for each element of the list. Errors: it is no list.
    Result<std::string> text_of(const Answer& list,
                                std::vector<std::string> (*row)(const Json& element));

  private:
    std::vector<Column> columns_;
    std::vector<std::vector<std::string>> rows_;
};

// A line of these keys, then one of their values for each element of the list, as they are in JSON:
// numbers in their units, lists with a blank between two. What holds a comma, a quote or a line's
// end stands in quotes. Errors: it is no list.
Result<std::string> csv_of(const Answer& list, std::span<const char* const> keys);

// "Name:  value" lines with the values in one column; "-" as "none".
std::string lines(const std::vector<std::pair<std::string, std::string>>& rows);

}  // namespace souk::tools
