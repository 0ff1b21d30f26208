enable f16;
enable wgpu_cooperative_matrix;

// Cooperative matrices of subgroups of 8 threads.
const SIDE = 8u;
const N_LANE = 8u;
alias MatA = coop_mat8x8<f16, A>;
alias MatB = coop_mat8x8<f16, B>;
alias MatC = coop_mat8x8<f32, C>;
