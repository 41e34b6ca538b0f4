// SPDX-License-Identifier: GPL-2.0-or-later
// Says how a job of the market's JSON stands, for people: the words that lists, pages and the
// monitor show. The words are those of `status` but for two: `frozen` and `stands` are `suspend`
// there.
#pragma once

#include <cstdint>
#include <string>

#include "tools/common/table.hpp"

namespace souk::tools {

// Returns `frozen` for a job on disk, `stands` for one that is stopped with its memory on its node,
// else the status.
std::string job_state(const Json& job);
// Returns the word for a status alone.
std::string state_word(const std::string& status);
// Returns the status of a word as the market takes it (`frozen`: `suspend`).
std::string status_of_word(const std::string& word);

// A colour is one state, of a job or of a node, as on the pages of souk-web.
enum class StateColour : uint8_t { plain, run, wait, frozen, moves, bad, dim };
// `state`: what job_state() or node_state() says; what follows a comma does not count.
StateColour state_colour(const std::string& state);
// Returns the text in the colour of its state, for a terminal.
std::string coloured_state(const std::string& state);
// Stdout is a terminal of colours, and nobody has said NO_COLOR.
bool stdout_has_colours();

}  // namespace souk::tools
