// What the host's allocator has just handed out, before anything touches it.
#pragma once

#include <cstddef>

namespace tatara {

/// Asks for huge pages under a big block: fresh memory is otherwise paid for in faults of 4 KB each (45 ms to fill 100 MB where warm
/// memory takes 12). For memory that comes often: where the machine gives free memory back to its host, a huge page takes 5 ms.
void advise_huge_pages(void* data, size_t bytes);

/// The same for a block in use whose contents nobody needs any more: its pages are given back, and huge ones come at the next touch.
void renew_with_huge_pages(void* data, size_t bytes);

/// Sets a block to zero without taking memory for it: the system gives pages where they are first written to, and what is only
/// read costs a fault, but no memory. False when that cannot be done here; the block's contents are then undefined.
bool clear_untouched(void* data, size_t bytes);

}  // namespace tatara
