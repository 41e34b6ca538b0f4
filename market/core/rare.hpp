// SPDX-License-Identifier: GPL-2.0-or-later
// Rare: what most of many things do not have: then it is one null pointer. Copied with its owner.
#pragma once

#include <memory>

namespace souk::market {

template <class T>
struct Rare : std::unique_ptr<T> {
    using std::unique_ptr<T>::unique_ptr;
    using std::unique_ptr<T>::operator=;
    Rare() = default;
    Rare(Rare&&) noexcept = default;
    Rare& operator=(Rare&&) noexcept = default;
    Rare(const Rare& other) : std::unique_ptr<T>(other ? std::make_unique<T>(*other) : nullptr) {}
    Rare& operator=(const Rare& other) { return *this = Rare(other); }
};

}  // namespace souk::market
