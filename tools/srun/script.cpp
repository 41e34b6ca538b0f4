// SPDX-License-Identifier: GPL-2.0-or-later
#include "tools/srun/script.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <string_view>

#include "kernel/sys/host/fd.hpp"

namespace souk::tools {
namespace {

constexpr size_t looked_at_max = 64 * 1024;

Status add_words(std::string_view line, size_t number, std::vector<std::string>& words) {
    std::string word;
    bool in_word = false;
    char quote = 0;
    for (const char c : line) {
        if (quote != 0 && c == quote) {
            quote = 0;
        } else if (quote == 0 && (c == '"' || c == '\'')) {
            quote = c;
            in_word = true;
        } else if (quote == 0 && (c == ' ' || c == '\t' || c == '\r')) {
            if (in_word) words.push_back(std::move(word));
            word.clear();
            in_word = false;
        } else {
            word += c;
            in_word = true;
        }
    }
    if (quote != 0)
        return fail("line " + std::to_string(number) + ": a quote (" + quote + ") does not end");
    if (in_word) words.push_back(std::move(word));
    return {};
}

}  // namespace

Result<Script> script_of(std::string_view text) {
    constexpr std::string_view key = "#SOUK";
    Script script;
    if (!text.starts_with("#!")) return script;
    for (size_t number = 1; !text.empty(); ++number) {
        const size_t end = std::min(text.find('\n'), text.size());
        const std::string_view line = text.substr(0, end);
        text.remove_prefix(std::min(end + 1, text.size()));
        if (!line.empty() && line[0] != '#') break;  // the program begins
        if (line.starts_with("#SBATCH") && script.sbatch_line == 0) script.sbatch_line = number;
        const std::string_view rest = line.substr(std::min(key.size(), line.size()));
        if (!line.starts_with(key) || (!rest.empty() && rest[0] != ' ' && rest[0] != '\t'))
            continue;
        ScriptLine own{number, {}};
        TRY(add_words(rest, number, own.words));
        if (!own.words.empty()) script.lines.push_back(std::move(own));
    }
    return script;
}

Result<Script> read_script(const std::string& file) {
    const Fd fd(::open(file.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
    struct stat st {};
    if (!fd || fstat(fd.get(), &st) != 0 || !S_ISREG(st.st_mode)) return Script{};
    std::string text(looked_at_max, '\0');
    const ssize_t n = ::pread(fd.get(), text.data(), text.size(), 0);
    text.resize(n > 0 ? static_cast<size_t>(n) : 0);
    auto script = script_of(text);
    if (!script) return wrap(file, script.error());
    return script;
}

}  // namespace souk::tools
