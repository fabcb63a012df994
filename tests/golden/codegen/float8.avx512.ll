define dso_local i32 @float8(ptr noalias readonly %buffers, ptr noalias readonly %sizes, ptr readonly %scalars, i64 %begin, i64 %end, ptr noalias %fault) #0 {
entry:
  %v0 = getelementptr ptr, ptr %buffers, i64 0
  %v1 = load ptr, ptr %v0
  %v2 = getelementptr ptr, ptr %buffers, i64 1
  %v3 = load ptr, ptr %v2
  %v4 = getelementptr ptr, ptr %buffers, i64 2
  %v5 = load ptr, ptr %v4
  %v6 = getelementptr ptr, ptr %buffers, i64 3
  %v7 = load ptr, ptr %v6
  br label %L8
L8:
  %v11 = phi i64 [ 0, %entry ], [ %v87, %L9 ]
  %v88 = icmp slt i64 %v11, 64
  br i1 %v88, label %L9, label %L10
L9:
  %v12 = getelementptr inbounds i8, ptr %v1, i64 %v11
  %v13 = load <32 x i8>, ptr %v12, align 1
  %v14 = getelementptr inbounds i8, ptr %v3, i64 %v11
  %v15 = load <32 x i8>, ptr %v14, align 1
  %v16 = zext <32 x i8> %v13 to <32 x i32>
  %v17 = and <32 x i32> %v16, splat (i32 127)
  %v18 = and <32 x i32> %v16, splat (i32 128)
  %v19 = shl <32 x i32> %v18, splat (i32 24)
  %v20 = shl <32 x i32> %v17, splat (i32 20)
  %v21 = bitcast <32 x i32> %v20 to <32 x float>
  %v22 = fmul <32 x float> %v21, splat (float 0x4770000000000000)
  %v23 = bitcast <32 x float> %v22 to <32 x i32>
  %v24 = icmp uge <32 x i32> %v17, splat (i32 127)
  %v25 = select <32 x i1> %v24, <32 x i32> splat (i32 2143289344), <32 x i32> %v23
  %v26 = or <32 x i32> %v25, %v19
  %v27 = bitcast <32 x i32> %v26 to <32 x float>
  %v28 = zext <32 x i8> %v15 to <32 x i32>
  %v29 = and <32 x i32> %v28, splat (i32 127)
  %v30 = and <32 x i32> %v28, splat (i32 128)
  %v31 = shl <32 x i32> %v30, splat (i32 24)
  %v32 = shl <32 x i32> %v29, splat (i32 21)
  %v33 = bitcast <32 x i32> %v32 to <32 x float>
  %v34 = fmul <32 x float> %v33, splat (float 0x46F0000000000000)
  %v35 = bitcast <32 x float> %v34 to <32 x i32>
  %v36 = icmp eq <32 x i32> %v29, splat (i32 124)
  %v37 = select <32 x i1> %v36, <32 x i32> splat (i32 2139095040), <32 x i32> %v35
  %v38 = icmp ugt <32 x i32> %v29, splat (i32 124)
  %v39 = select <32 x i1> %v38, <32 x i32> splat (i32 2143289344), <32 x i32> %v37
  %v40 = or <32 x i32> %v39, %v31
  %v41 = bitcast <32 x i32> %v40 to <32 x float>
  %v42 = fadd <32 x float> %v27, %v41
  %v43 = bitcast <32 x float> %v42 to <32 x i32>
  %v44 = and <32 x i32> %v43, splat (i32 2147483647)
  %v45 = lshr <32 x i32> %v43, splat (i32 24)
  %v46 = and <32 x i32> %v45, splat (i32 128)
  %v47 = bitcast <32 x i32> %v44 to <32 x float>
  %v48 = fadd <32 x float> %v47, splat (float 0x4060000000000000)
  %v49 = bitcast <32 x float> %v48 to <32 x i32>
  %v50 = sub <32 x i32> %v49, splat (i32 1124073472)
  %v51 = icmp ult <32 x i32> %v44, splat (i32 947912704)
  %v52 = lshr <32 x i32> %v44, splat (i32 21)
  %v53 = and <32 x i32> %v52, splat (i32 1)
  %v54 = add <32 x i32> %v53, splat (i32 -938475521)
  %v55 = add <32 x i32> %v44, %v54
  %v56 = lshr <32 x i32> %v55, splat (i32 21)
  %v57 = select <32 x i1> %v51, <32 x i32> %v50, <32 x i32> %v56
  %v58 = icmp uge <32 x i32> %v44, splat (i32 1199570944)
  %v59 = select <32 x i1> %v58, <32 x i32> splat (i32 124), <32 x i32> %v57
  %v60 = icmp ugt <32 x i32> %v44, splat (i32 2139095040)
  %v61 = select <32 x i1> %v60, <32 x i32> splat (i32 127), <32 x i32> %v59
  %v62 = or <32 x i32> %v61, %v46
  %v63 = trunc <32 x i32> %v62 to <32 x i8>
  %v64 = bitcast <32 x float> %v42 to <32 x i32>
  %v65 = and <32 x i32> %v64, splat (i32 2147483647)
  %v66 = lshr <32 x i32> %v64, splat (i32 24)
  %v67 = and <32 x i32> %v66, splat (i32 128)
  %v68 = bitcast <32 x i32> %v65 to <32 x float>
  %v69 = fadd <32 x float> %v68, splat (float 0x40D0000000000000)
  %v70 = bitcast <32 x float> %v69 to <32 x i32>
  %v71 = sub <32 x i32> %v70, splat (i32 1182793728)
  %v72 = icmp ult <32 x i32> %v65, splat (i32 1015021568)
  %v73 = lshr <32 x i32> %v65, splat (i32 20)
  %v74 = and <32 x i32> %v73, splat (i32 1)
  %v75 = add <32 x i32> %v74, splat (i32 -1006108673)
  %v76 = add <32 x i32> %v65, %v75
  %v77 = lshr <32 x i32> %v76, splat (i32 20)
  %v78 = select <32 x i1> %v72, <32 x i32> %v71, <32 x i32> %v77
  %v79 = icmp uge <32 x i32> %v65, splat (i32 1139802113)
  %v80 = select <32 x i1> %v79, <32 x i32> splat (i32 127), <32 x i32> %v78
  %v81 = icmp ugt <32 x i32> %v65, splat (i32 2139095040)
  %v82 = select <32 x i1> %v81, <32 x i32> splat (i32 127), <32 x i32> %v80
  %v83 = or <32 x i32> %v82, %v67
  %v84 = trunc <32 x i32> %v83 to <32 x i8>
  %v85 = getelementptr inbounds i8, ptr %v5, i64 %v11
  store <32 x i8> %v63, ptr %v85, align 1
  %v86 = getelementptr inbounds i8, ptr %v7, i64 %v11
  store <32 x i8> %v84, ptr %v86, align 1
  %v87 = add nsw i64 %v11, 32
  br label %L8
L10:
  ret i32 0
}
attributes #0 = { nounwind "prefer-vector-width"="512" }
!0 = !{!"branch_weights", i32 1, i32 1000000}
