enable f16;
enable wgpu_cooperative_matrix;

// Cooperative matrices of subgroups of 32 threads.
const SIDE = 16u;
const N_LANE = 32u;
alias MatA = coop_mat16x16<f16, A>;
alias MatB = coop_mat16x16<f16, B>;
alias MatC = coop_mat16x16<f32, C>;
