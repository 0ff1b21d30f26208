//! What a kernel is: WGSL text, its buffers, and the pipelines made of it.

use arrayvec::ArrayVec;
use rustc_hash::FxHashMap;
use wgpu::{
    BindGroupLayout, BindGroupLayoutDescriptor, BindGroupLayoutEntry, BindingType, BufferBindingType,
    ComputePipeline, ComputePipelineDescriptor, Device, PipelineCompilationOptions, PipelineLayout,
    PipelineLayoutDescriptor, ShaderStages,
};

use crate::adapter::PARAMS_BYTES_MAX;
use crate::raw;

/// How a kernel uses a buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Access {
    /// `var<storage, read>`
    Read,
    /// `var<storage, read_write>`
    Write,
}

/// A compute kernel. Its buffers are bindings 0.. of group 0, its parameters `var<immediate>`, its entry point `main`.
pub(crate) struct Kernel {
    /// For messages; unique.
    pub(crate) name: &'static str,
    /// Parts of its text, joined.
    pub(crate) wgsl: &'static [&'static str],
    /// Its buffers.
    pub(crate) access: &'static [Access],
}

impl Kernel {
    #[cfg(not(test))]
    fn text(&self) -> String {
        self.wgsl.concat()
    }

    /// With what a test has planted in it.
    #[cfg(test)]
    fn text(&self) -> String {
        planted::text(self.name, self.wgsl.concat())
    }
}

/// Values of the text's `override` constants.
pub(crate) type Constants<'a> = &'a [(&'static str, u32)];

/// A kernel with its constants, ready to be dispatched.
pub(crate) struct Pipeline {
    pub(crate) raw: ComputePipeline,
    /// Number of the layout of its buffers.
    pub(crate) layout: usize,
}

/// Pipelines that were made so far.
#[derive(Default)]
pub(crate) struct Pipelines {
    made: FxHashMap<PipelineKey, Pipeline>,
    layouts: Vec<Layout>,
}

/// Buffers, and what wgpu makes of them.
type Layout = (&'static [Access], BindGroupLayout, PipelineLayout);

/// Which kernel it is, and the values of its constants.
type PipelineKey = (&'static str, ArrayVec<u32, N_CONSTANT_MAX>);

/// Most constants of a kernel.
const N_CONSTANT_MAX: usize = 12;

impl Pipelines {
    /// The pipeline of a kernel with these constants; made when it is first asked for.
    pub(crate) fn get(&mut self, device: &Device, kernel: &Kernel, constants: Constants<'_>) -> &Pipeline {
        let key = (kernel.name, constants.iter().map(|&(_, value)| value).collect());
        let Self { made, layouts } = self;
        made.entry(key).or_insert_with(|| {
            let layout = layout(layouts, device, kernel.access);
            Pipeline { raw: make(device, kernel, constants, &layouts[layout].2), layout }
        })
    }

    /// The layout of a pipeline's buffers.
    pub(crate) fn bind_group_layout(&self, layout: usize) -> &BindGroupLayout {
        &self.layouts[layout].1
    }
}

/// Number of the layout of such buffers.
fn layout(layouts: &mut Vec<Layout>, device: &Device, access: &'static [Access]) -> usize {
    if let Some(at) = layouts.iter().position(|(known, ..)| *known == access) {
        return at;
    }
    let entry = |(binding, access): (usize, &Access)| BindGroupLayoutEntry {
        binding: binding as u32,
        visibility: ShaderStages::COMPUTE,
        ty: BindingType::Buffer {
            ty: BufferBindingType::Storage { read_only: *access == Access::Read },
            has_dynamic_offset: false,
            min_binding_size: None,
        },
        count: None,
    };
    let entries: Vec<_> = access.iter().enumerate().map(entry).collect();
    let group =
        device.create_bind_group_layout(&BindGroupLayoutDescriptor { label: None, entries: &entries });
    let layout = device.create_pipeline_layout(&PipelineLayoutDescriptor {
        label: None,
        bind_group_layouts: &[Some(&group)],
        immediate_size: PARAMS_BYTES_MAX,
    });
    layouts.push((access, group, layout));
    layouts.len() - 1
}

fn make(
    device: &Device,
    kernel: &Kernel,
    constants: Constants<'_>,
    layout: &PipelineLayout,
) -> ComputePipeline {
    let text = kernel.text();
    let module = raw::trusted_module(device, kernel.name, &text);
    let constants: Vec<(&str, f64)> =
        constants.iter().map(|&(name, value)| (name, f64::from(value))).collect();
    device.create_compute_pipeline(&ComputePipelineDescriptor {
        label: Some(kernel.name),
        layout: Some(layout),
        module: &module,
        entry_point: Some("main"),
        compilation_options: PipelineCompilationOptions {
            constants: &constants,
            zero_initialize_workgroup_memory: false,
        },
        cache: None,
    })
}

#[cfg(test)]
pub(crate) mod planted {
    //! Kernels with a mistake, as a wrong driver would run them.

    use std::cell::Cell;
    use std::collections::BTreeSet;

    use super::Pipelines;

    /// In the kernel of this name, each of the first text becomes the second one.
    #[derive(Clone, Copy)]
    pub(crate) struct Mistake {
        pub(crate) kernel: &'static str,
        pub(crate) right: &'static str,
        pub(crate) wrong: &'static str,
    }

    thread_local! {
        static MISTAKE: Cell<Option<Mistake>> = const { Cell::new(None) };
    }

    pub(super) fn text(name: &str, text: String) -> String {
        match MISTAKE.get() {
            Some(Mistake { kernel, right, wrong }) if kernel == name => {
                assert!(text.contains(right), "'{right}' is not in {name}");
                text.replace(right, wrong)
            }
            _ => text,
        }
    }

    /// Pipelines that this thread makes from now on have this mistake.
    pub(crate) fn set(mistake: Option<Mistake>) {
        MISTAKE.set(mistake);
    }

    impl Pipelines {
        /// Those of a kernel are made anew.
        pub(crate) fn forget(&mut self, kernel: &str) {
            self.made.retain(|(name, _), _| *name != kernel);
        }

        /// Kernels of which there is one.
        pub(crate) fn names(&self) -> BTreeSet<&'static str> {
            self.made.keys().map(|(name, _)| *name).collect()
        }
    }
}

/// Fails if no list has it: tests that look at every kernel would not see it.
#[cfg(test)]
pub(crate) fn assert_listed(kernel: &Kernel) {
    let is_listed = crate::ops::kernels().iter().any(|listed| std::ptr::eq(*listed, kernel));
    assert!(is_listed, "{} is missing in the `kernels` of its file", kernel.name);
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use crate::ops;

    #[test]
    fn every_text_belongs_to_a_listed_kernel() {
        // Breaks if a kernel is in no list, so that neither its MSL is checked nor the self-test has to know it.
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/wgsl");
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            let text = std::fs::read_to_string(&path).unwrap();
            let is_used = ops::kernels().iter().any(|kernel| kernel.wgsl.contains(&text.as_str()));
            assert!(is_used, "no listed kernel has {}", path.display());
        }
    }

    #[test]
    fn names_are_unique() {
        // Breaks if two kernels share a name, and so a pipeline.
        let mut names: Vec<_> = ops::kernels().iter().map(|kernel| kernel.name).collect();
        names.sort_unstable();
        assert!(names.windows(2).all(|pair| pair[0] != pair[1]), "{names:?}");
    }
}
